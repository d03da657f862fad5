package sim

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
)

// Health is what a server does with commands.
type Health struct {
	// Rejects, if set, is what every command is answered with; RejectsWrites what those
	// are that write.
	Rejects, RejectsWrites string
	// Frozen keeps commands until it is over.
	Frozen bool
	// Down rejects connections.
	Down bool
	// Slow is the time that a command takes, beside the usual one, and Each that of a key of a script.
	Slow, Each time.Duration
}

// Real is a Redis server that executes the scripts as well: its replies must be those of the
// step functions. It is nil where there is none.
type Real interface {
	// Script executes a script for a server, on keys of which some are gone.
	Script(server, text string, keys, argv, gone []string) ([]int64, error)
	// Remove removes members of a sorted set.
	Remove(server, key string, members []string) error
}

// work is a command that has arrived.
type work struct {
	from *conn
	args []string
}

// keys is how many keys a script has, 0 of another command.
func (w *work) keys() int {
	if len(w.args) < 3 || !strings.HasPrefix(strings.ToLower(w.args[0]), "eval") {
		return 0
	}
	n, _ := strconv.Atoi(w.args[2])
	return n
}

// Server is a Redis server.
type Server struct {
	net    *network
	ledger *ledger
	// cluster is the one that it belongs to; nil without.
	cluster *cluster
	// at are the addresses of the master and of its replica, which is "" where it has none.
	at atomic.Pointer[[2]string]

	mu      sync.Mutex
	rng     *rand.Rand
	health  Health
	offset  time.Duration // of its clock
	gains   time.Duration // of its clock in a second, since drifts
	drifts  time.Time
	keys    map[string]*value
	scripts map[string]string // known, by their SHA-1
	real    Real              // nil without
	queue   []work
	busy    bool
	// saved is what a failover restores.
	saved map[string]*value
	// commands counts those executed.
	commands int
}

func newServer(net *network, l *ledger, addr string, seed uint64) *Server {
	s := &Server{net: net, ledger: l, rng: rand.New(rand.NewPCG(seed, 7)), keys: map[string]*value{}, scripts: map[string]string{}}
	s.at.Store(&[2]string{addr, ""})
	net.servers[addr] = s
	return s
}

// follow gives s a replica, which takes its place when it is promoted.
func (s *Server) follow(addr string) {
	s.at.Store(&[2]string{s.address(), addr})
	s.net.servers[addr] = s
}

func (s *Server) address() string { return s.at.Load()[0] }

// addresses are those of the master and of its replica.
func (s *Server) addresses() []string {
	if at := s.at.Load(); at[1] != "" {
		return at[:]
	}
	return s.at.Load()[:1]
}

func (s *Server) listens(addr string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.health.Down || addr != s.address()
}

// now is the time by the server's clock. mu is held.
func (s *Server) now() int64 {
	now := time.Now()
	if s.gains != 0 {
		now = now.Add(time.Duration(now.Sub(s.drifts).Seconds() * float64(s.gains)))
	}
	return now.Add(s.offset).UnixMicro()
}

// set changes the health. What was kept while it was frozen is executed when it ends.
func (s *Server) set(change func(*Health)) {
	s.mu.Lock()
	change(&s.health)
	s.mu.Unlock()
	s.run()
}

// step moves the server's clock.
func (s *Server) step(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset += d
}

// drift lets the server's clock gain so much more in each second from now on.
func (s *Server) drift(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.offset += time.Duration(now.Sub(s.drifts).Seconds() * float64(s.gains))
	s.gains, s.drifts = s.gains+by, now
}

// lose forgets keys: those for which is says so.
func (s *Server) lose(is func(key string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(s.keys)) {
		if is(k) {
			delete(s.keys, k)
			s.ledger.lost(k)
		}
	}
}

// forgetScripts is SCRIPT FLUSH.
func (s *Server) forgetScripts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.scripts)
}

// save keeps the state as a replica has it that is about to stop following, and restore
// is its promotion: the writes since then are lost.
func (s *Server) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = map[string]*value{}
	for k, v := range s.keys {
		s.saved[k] = v.clone()
	}
}

func (s *Server) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved == nil {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(s.keys)) {
		if old := s.saved[k]; old == nil || !equal(&old.state, &s.keys[k].state) || !maps.Equal(old.set, s.keys[k].set) {
			s.ledger.lost(k)
		}
	}
	for k := range s.saved {
		s.ledger.restored(k)
	}
	s.keys, s.saved = s.saved, nil
	clear(s.scripts)
}

// failOver ends all connections, and makes the replica the master, if there is one, with
// what save has kept.
func (s *Server) failOver() {
	s.crash()
	if at := s.at.Load(); at[1] != "" {
		s.at.Store(&[2]string{at[1], at[0]})
	}
	s.restore()
}

// take removes the keys that is says to, and returns what they hold.
func (s *Server) take(is func(key string) bool) map[string]*value {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := map[string]*value{}
	for _, k := range slices.Sorted(maps.Keys(s.keys)) {
		if v := s.get(k); v != nil && is(k) {
			taken[k] = v
			delete(s.keys, k)
		}
	}
	return taken
}

// put keeps what another server has kept, whose clock was then at.
func (s *Server) put(key string, v *value, then int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.expires += s.now() - then
	s.keys[key] = v
}

// clock is the time by the server's clock.
func (s *Server) clock() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

// receive takes bytes of a connection.
func (s *Server) receive(c *conn, b []byte) {
	s.mu.Lock()
	c.request = append(c.request, b...)
	for {
		args, rest, ok := parse(c.request)
		if !ok {
			break
		}
		c.request = append(c.request[:0], rest...) // mostly nothing is left
		s.queue = append(s.queue, work{c, args})
	}
	s.mu.Unlock()
	s.run()
}

// run executes what waits, one command after the other.
func (s *Server) run() {
	s.mu.Lock()
	if s.busy || s.health.Frozen || len(s.queue) == 0 {
		s.mu.Unlock()
		return
	}
	s.busy = true
	took := 20*time.Microsecond + time.Duration(s.rng.Int64N(5_000)) + s.health.Slow + time.Duration(s.queue[0].keys())*s.health.Each
	s.mu.Unlock()
	s.net.instants.after(took, func() {
		s.mu.Lock()
		s.busy = false
		if s.health.Frozen || len(s.queue) == 0 {
			s.mu.Unlock()
			return
		}
		next := s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1)
		answer := s.execute(next)
		s.commands++
		down := s.health.Down
		s.mu.Unlock()
		if !down {
			next.from.send(answer)
		}
		s.run()
	})
}

// crash ends all connections, and what they asked for.
func (s *Server) crash() {
	s.mu.Lock()
	s.queue = nil
	s.mu.Unlock()
	s.net.mu.Lock()
	var ends []*conn
	for c := range s.net.conns {
		if c.addr == s.address() {
			ends = append(ends, c)
		}
	}
	sortConns(ends)
	s.net.mu.Unlock()
	s.net.reset(ends)
}

// parse reads one request: an array of bulk strings.
func parse(b []byte) (args []string, rest []byte, ok bool) {
	n, b, ok := header(b, '*')
	if !ok {
		return nil, nil, false
	}
	args = make([]string, n)
	text := string(b) // of which the arguments are parts
	for i := range args {
		size, after, ok := header(b, '$')
		if !ok || len(after) < size+2 {
			return nil, nil, false
		}
		at := len(text) - len(after)
		args[i], b = text[at:at+size], after[size+2:]
	}
	return args, b, true
}

// header reads the number of a line that begins with kind.
func header(b []byte, kind byte) (n int, rest []byte, ok bool) {
	end := bytes.IndexByte(b, '\n')
	if end < 2 || b[0] != kind {
		return 0, nil, false
	}
	for _, digit := range b[1 : end-1] {
		n = 10*n + int(digit-'0')
	}
	return n, b[end+1:], true
}

func failure(text string) []byte { return []byte("-" + text + "\r\n") }

func integer(n int64) []byte { return item(nil, ':', n) }

func integers(v []int64) []byte {
	b := item(make([]byte, 0, 8+20*len(v)), '*', int64(len(v)))
	for _, n := range v {
		b = item(b, ':', n)
	}
	return b
}

// item appends a line of a reply that is a number.
func item(b []byte, kind byte, n int64) []byte {
	return append(strconv.AppendInt(append(b, kind), n, 10), "\r\n"...)
}

// execute answers a command. mu is held.
func (s *Server) execute(w work) []byte {
	args, asking := w.args, w.from.asking
	w.from.asking = false
	name := strings.ToLower(args[0])
	var keys, argv []string
	switch name {
	case "evalsha", "evalsha_ro", "eval", "eval_ro":
		n, _ := strconv.Atoi(args[2])
		keys, argv = args[3:3+n], args[3+n:]
	case "del":
		keys = args[1:]
	case "zrem":
		keys = args[1:2]
	}
	if s.health.Rejects != "" {
		return failure(s.health.Rejects)
	}
	if s.cluster != nil {
		if answer := s.cluster.elsewhere(s, w.from.addr, asking, keys); answer != nil {
			s.ledger.redirected(answer)
			return answer
		}
	}
	rejects := s.health.RejectsWrites
	if w.from.addr != s.address() {
		rejects = writeRejections[1] // READONLY
	}
	switch name {
	case "evalsha", "evalsha_ro", "eval", "eval_ro":
		script := args[1]
		if strings.HasPrefix(name, "evalsha") {
			if s.scripts[script] == "" {
				return failure("NOSCRIPT No matching script. Please use EVAL.")
			}
		} else {
			script = lua.SHA(args[1])
			s.scripts[script] = args[1]
		}
		return s.script(script, keys, argv, rejects)
	case "del", "zrem":
		if rejects != "" {
			return failure(rejects)
		}
		return integer(s.remove(name, args[1:]))
	case "ping":
		return []byte("+PONG\r\n")
	case "asking":
		w.from.asking = true
		return []byte("+OK\r\n")
	case "command":
		return array(nil)
	case "cluster":
		if s.cluster != nil {
			return s.cluster.slots()
		}
	}
	return failure("ERR unknown command '" + args[0] + "'")
}

// script executes one by the step functions, and returns its reply; ok is false for one that
// is not known here.
func (r *run) script(name string, keys, argv []string) (reply []int64, ok bool) {
	if n := number(argv[0]); n != 0 {
		r.now = n
	}
	kind, what, _ := strings.Cut(name, "_")
	switch {
	case name == "all":
		return r.all(keys, argv), true
	case name == "beat":
		return r.beat(keys, argv), true
	case name == "learnt":
		return r.learnt(keys[0], argv), true
	case name == "permits":
		return r.permits(keys, argv), true
	case name == "permits_keep":
		return r.keep(keys, argv), true
	case name == "sampled":
		return r.report(keys, argv), true
	case name == "sampled_bury":
		return r.bury(keys, argv), true
	case kindOf(kind) == 0:
		return nil, false
	case what == "":
		return r.decide(kindIn(keys[0]), keys, argv), true
	case what == "back":
		return r.back(kindIn(keys[0]), keys, argv), true
	case what == "block":
		return r.block(kindIn(keys[0]), keys[0], argv), true
	}
	return nil, false
}

// script executes one, and writes what it changes unless writes are rejected. mu is held.
func (s *Server) script(sha string, keys, argv []string, rejects string) []byte {
	r := &run{get: s.get, now: s.now()}
	reply, ok := r.script(lua.Known(sha), keys, argv)
	if !ok {
		return failure("ERR the simulation does not know the script " + lua.Known(sha))
	}
	if len(r.changes) > 0 && rejects != "" {
		return failure(rejects)
	}
	if s.real != nil {
		s.compare(s.scripts[sha], keys, argv, r.now, reply)
	}
	for _, c := range r.changes {
		if c.to.kind == 0 && len(c.to.set)+len(c.to.learnt) == 0 {
			delete(s.keys, c.key)
			continue
		}
		s.keys[c.key] = c.to
	}
	if len(r.charges)+len(r.granted) > 0 {
		s.ledger.executed(argv[1])
	}
	for _, c := range r.charges {
		s.ledger.charged(c, r.now)
	}
	for _, d := range r.denials {
		s.ledger.lacked(d, r.now)
	}
	return integers(reply)
}

// compare lets the real server execute a script at the same time, whose reply must be the
// same. mu is held.
func (s *Server) compare(text string, keys, argv []string, now int64, reply []int64) {
	var gone []string
	for _, k := range keys {
		if s.get(k) == nil {
			gone = append(gone, k)
		}
	}
	argv = append([]string{strconv.FormatInt(now, 10)}, argv[1:]...)
	got, err := s.real.Script(s.address(), text, keys, argv, gone)
	s.ledger.same(keys, argv, reply, got, err)
}

func (s *Server) remove(command string, args []string) (n int64) {
	if command == "zrem" {
		v := s.get(args[0])
		if v == nil {
			return 0
		}
		if s.real != nil {
			s.ledger.same(args[:1], args[1:], nil, nil, s.real.Remove(s.address(), args[0], args[1:]))
		}
		for _, m := range args[1:] {
			if _, has := v.set[m]; has {
				delete(v.set, m)
				n++
			}
		}
		if len(v.set) == 0 {
			delete(s.keys, args[0])
		}
		return n
	}
	for _, k := range args {
		if s.get(k) != nil {
			delete(s.keys, k)
			s.ledger.lost(k)
			n++
		}
	}
	return n
}

// get returns what a key holds, nil when it does not exist. mu is held.
func (s *Server) get(key string) *value {
	v := s.keys[key]
	if v != nil && v.expires <= s.now() {
		delete(s.keys, key)
		return nil
	}
	return v
}
