package redislink

import (
	"cmp"
	"context"
	"hash/crc32"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// Link is a client with its servers. It is safe for concurrent use.
type Link struct {
	Background *Background
	Names      *lua.Namer            // makes the keys
	Client     redis.UniversalClient // that the link was made with
	Prefix     string                // the first part of every key
	Budget     time.Duration         // that a request may take

	share   float64 // 0 is learnt from the heartbeat
	started time.Time
	wire    *wire
	servers *servers
	slots   *slotMap // of a cluster; nil without
	fleet   *fleet
	// settle is called after a return, nil without; patience is how long one may take.
	settle   func(context.Context)
	patience time.Duration
	closing  sync.Once
	name     name // that Claim took; guarded by inUse
}

// New returns a link. It does not talk to Redis. The error is one of configuration.
func New(c Config) (*Link, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &events{logger: c.Logger, prefix: c.Prefix, policy: c.Policy, onCall: c.OnCall, onChange: c.OnChange}
	background := NewBackground()
	w := &wire{
		lua: lua.NewClient(c.Client), functions: c.Functions, names: lua.NewNamer(c.Prefix),
		inFlight: c.MaxInFlight, budget: c.Budget, events: e,
	}
	if plain, ok := c.Client.(*redis.Client); ok {
		w.plain, w.ends = true, !c.Functions && keepsToDeadlines(plain.Options())
	}
	w.connections = connections(c.Client)
	w.nonces.process = randomName()
	w.ops.New = func() any { return new(Op) }
	if c.Functions {
		w.lua.UseFunctions(c.Client)
	}
	settings := c.breakerSettings(e.changed)
	// Of a caller's whole budget some has passed when its call is sent.
	w.fair = min(c.Budget-c.Budget/8, settings.SlowCall)
	l := &Link{
		Background: background, Names: w.names, Client: c.Client, Prefix: c.Prefix, Budget: c.Budget, share: c.Share,
		started: time.Now(), wire: w, fleet: newFleet(&c), patience: settings.OpenMax + returnGrace,
	}
	of, oneSlot, slots := topology(c.Client)
	l.slots = slots
	if l.servers, err = newServers(w, settings, of, oneSlot, l.changed); err != nil {
		return nil, err
	}
	return l, nil
}

// keepsToDeadlines reports that a client with these options ends a call at the deadline of its
// context. Without timeouts it sets no deadlines, and functions of the user's that make a
// connection ready may take their time. With functions, a call may also wait for another one
// that loads the library.
func keepsToDeadlines(opt *redis.Options) bool {
	return opt.ContextTimeoutEnabled && opt.ReadTimeout >= 0 && opt.WriteTimeout >= 0 &&
		opt.OnConnect == nil && opt.CredentialsProvider == nil && opt.CredentialsProviderContext == nil && opt.StreamingCredentialsProvider == nil
}

// Now is the time since New, by a clock that never steps.
func (l *Link) Now() time.Duration { return time.Since(l.started) }

// Nonce returns a string that no other call of any process has, with an end.
func (l *Link) Nonce(end string) string {
	var room [48]byte
	return string(append(l.wire.nonces.next(room[:0]), end...))
}

// Server returns the server of an encoded id.
func (l *Link) Server(id string) *Server { return l.servers.forID(id) }

// Servers returns those seen so far.
func (l *Link) Servers() []*Server { return l.servers.list() }

// FunctionsError is why functions are not in use although the Config asks for them; nil
// when they are, or are not asked for.
func (l *Link) FunctionsError() error {
	if !l.wire.functions {
		return nil
	}
	_, err := l.wire.lua.Functions()
	return err
}

// Life ends when Close begins.
func (l *Link) Life() context.Context { return l.Background.ctx }

// IsClosed reports that Close has begun.
func (l *Link) IsClosed() bool { return l.Background.ctx.Err() != nil }

// Do makes a request within the budget, and says what came of it. When the class is
// breaker.ClassOK, o holds the answer; otherwise it must not be used any more.
func (l *Link) Do(ctx context.Context, srv *Server, o *Op, budget time.Duration) (breaker.Class, error) {
	return l.ended(srv.queue.do(ctx, o, budget))
}

// ended looks after the map of a cluster when a request has ended.
func (l *Link) ended(class breaker.Class, err error) (breaker.Class, error) {
	if l.slots != nil {
		l.slots.watch(class != breaker.ClassOK, l.Now(), l.Background)
	}
	return class, err
}

// Close ends what runs in the background, waits for calls under way, and deregisters the
// process. Before that, last may make requests by Last.
func (l *Link) Close(last func()) {
	l.closing.Do(func() {
		l.Background.Close()
		for _, srv := range l.servers.list() {
			srv.queue.drain(false)
		}
		last()
		l.release()
		l.deregister()
		for _, srv := range l.servers.list() {
			srv.queue.drain(true)
		}
	})
}

// NewOp returns an empty Op.
func (l *Link) NewOp() *Op { return l.wire.ops.Get().(*Op) }

// Free takes o back for another use after Do, unless a call that its caller has left still has it.
func (l *Link) Free(o *Op) {
	if o.state == left {
		return
	}
	*o = Op{done: o.done, Outs: o.Outs[:0]}
	l.wire.ops.Put(o)
}

// Exec runs a command on keys of an encoded id. It ends with the context, the budget and
// the link. The error is an *Error.
func (l *Link) Exec(ctx context.Context, id string, cmd lua.Command) error {
	return l.Ask(ctx, l.Server(id), &Op{ID: id, Command: cmd}, l.Budget)
}

// Ask is Do for requests that are not sent while the breaker is open. The error is an
// *Error.
func (l *Link) Ask(ctx context.Context, srv *Server, o *Op, budget time.Duration) error {
	if srv.Breaker.Rejects() {
		return &Error{breaker.ClassUnavailable, ErrOpen}
	}
	return failure(l.Do(ctx, srv, o, budget))
}

// Probe asks a server whose breaker lets a call through whether it answers, and reports whether its breaker is closed by that.
func (l *Link) Probe(ctx context.Context, srv *Server) bool {
	if key := l.peersOn(srv); key != "" {
		_ = l.Ask(ctx, srv, &Op{ID: key, Command: probeOf(l.Names, key)}, l.Budget)
	}
	return srv.Answers()
}

// AskAll asks for several requests at once, so that they share calls, and returns the
// error of each.
func (l *Link) AskAll(ctx context.Context, ops []*Op) []error {
	errs, begun := make([]error, len(ops)), make([]*queue, len(ops))
	for i, o := range ops {
		srv := l.Server(o.ID)
		if srv.Breaker.Rejects() {
			errs[i] = &Error{breaker.ClassUnavailable, ErrOpen}
		} else if _, ok := srv.queue.start(ctx, o, l.Budget, false); ok {
			begun[i] = srv.queue
		} else {
			errs[i] = failure(l.ended(o.Class, o.Err))
		}
	}
	for i, o := range ops {
		if q := begun[i]; q != nil {
			errs[i] = failure(l.ended(q.await(ctx, o)))
		}
	}
	return errs
}

// failure is the error of a request that ended with a class.
func failure(class breaker.Class, err error) error {
	if class == breaker.ClassOK {
		return nil
	}
	return &Error{class, err}
}

// Last is Ask for what Close has to send, whatever the breaker says.
func (l *Link) Last(o *Op) error {
	o.Lasts = true
	return failure(l.Do(context.Background(), l.Server(o.ID), o, l.Budget))
}

// Beat sends the heartbeats that are due in the background. It is called where srv has
// just answered, and does nothing where the share is fixed.
func (l *Link) Beat(srv *Server) {
	if l.share != 0 {
		return
	}
	if l.fleet.turn.Due(l.Now(), beatEvery) {
		l.Background.Start(l.beat)
	}
	if l.settle != nil && srv != l.servers.only && srv.turn.Due(l.Now(), beatEvery) {
		l.Background.Start(func(ctx context.Context) { l.beatAt(ctx, srv) })
	}
	l.askPeers()
}

// askPeers asks the function of the user's for the number of processes, if it is due. One
// that does not return is not asked again.
func (l *Link) askPeers() {
	f := l.fleet
	if f.ask == nil || l.share != 0 || !f.askTurn.Due(l.Now(), beatEvery) || !f.asking.CompareAndSwap(false, true) {
		return
	}
	l.Background.Start(f.askPeers)
}

// beat registers this process and learns how many are alive.
func (l *Link) beat(ctx context.Context) {
	key, sent := l.Names.Peers(0), l.Now()
	l.fleet.beat(sent)
	b := l.heartbeat(key)
	err := l.Exec(ctx, key, &b)
	again := err == nil && l.Counted(b.Alive)
	l.fleet.schedule(&l.fleet.turn, sent, l.Now(), BeatLife+micros(b.Longer), again)
	if err != nil {
		return
	}
	l.followBack(ctx, l.Server(key), &b, &l.fleet.turn)
}

// beatAt registers this process at one more server of several, so that those who use it
// return to it together.
func (l *Link) beatAt(ctx context.Context, srv *Server) {
	key := l.peersOn(srv)
	if key == "" || key == l.Names.Peers(0) {
		return
	}
	b, sent := l.heartbeat(key), l.Now()
	err := l.Exec(ctx, key, &b)
	if err == nil {
		l.fleet.count(l.beatsOf(srv), b.Alive, time.Now())
	}
	l.fleet.schedule(&srv.turn, sent, sent, BeatLife+micros(b.Longer), false)
	if err == nil {
		l.followBack(ctx, srv, &b, &srv.turn)
	}
}

// heartbeat is what all heartbeats under a key of the fleet say.
func (l *Link) heartbeat(key string) lua.Beat {
	b := lua.Beat{Key: key, ID: l.fleet.id, Life: BeatLife.Microseconds(), Longer: l.fleet.longer().Microseconds(), Patience: l.patience.Microseconds()}
	if l.settle != nil && key != "" {
		b.Back = l.Names.Back(key, l.keeps())
	}
	return b
}

// peersOn is the key of heartbeats on a server: the same in all processes that know the same
// servers. It is "" where none was found.
func (l *Link) peersOn(srv *Server) string {
	for i := range mostKeys {
		if key := l.Names.Peers(i); l.servers.on(srv, key) {
			return key
		}
	}
	return ""
}

// beatsOf is the census by the heartbeats on a server.
func (l *Link) beatsOf(srv *Server) *census {
	if l.servers.on(srv, l.Names.Peers(0)) {
		return &l.fleet.beats
	}
	return &srv.beats
}

// counted is how many processes were counted on a server, this one among them. What a function
// of the user's says does not count where the heartbeats have: not all of those may send one.
func (l *Link) counted(srv *Server) int64 {
	of := l.beatsOf(srv)
	l.fleet.mu.Lock()
	defer l.fleet.mu.Unlock()
	if of == &l.fleet.beats {
		return cmp.Or(of.n, l.fleet.peers.n)
	}
	return of.n
}

// Counted notes how many processes Redis knows, and reports whether that is another number.
func (l *Link) Counted(alive int64) (changed bool) {
	return alive > 0 && l.fleet.count(&l.fleet.beats, alive, time.Now())
}

// deregister takes this process off the lists, where Redis can be asked and no other link of
// the process is on them.
func (l *Link) deregister() {
	if !l.fleet.leave() {
		return
	}
	for _, srv := range l.servers.list() {
		if key := l.peersOn(srv); key != "" && (key == l.Names.Peers(0) || l.counted(srv) > 0) && !srv.Breaker.Rejects() {
			l.Last(&Op{ID: key, Command: &lua.Beat{Key: key, ID: l.fleet.id}})
		}
	}
}

// Phase is an algo.Params.Phase: a number of this process.
func (l *Link) Phase() int64 { return int64(crc32.ChecksumIEEE([]byte(l.fleet.id)) >> 12) }

// Pace is how often this process may do what the fleet does at most so many times in a second.
func (l *Link) Pace(perSecond int64) time.Duration { return l.fleet.pace(0, perSecond) }

// Processes is as how many this process counts itself and the others: what was learnt
// last, or what is assumed until then.
func (l *Link) Processes() int { return int(l.fleet.size()) }

// Share is the part of a limit that this process may use on its own.
func (l *Link) Share() float64 {
	if l.share > 0 {
		return l.share
	}
	return 1 / float64(l.fleet.size())
}

// ShareOrigin says where Share comes from: it is assumed while nothing is known, learnt from
// the heartbeat or from the function of the user's, or fixed by WithShare.
func (l *Link) ShareOrigin() string {
	switch {
	case l.share > 0:
		return "fixed"
	case l.fleet.alive.Load() > 0:
		return "learnt"
	}
	return "assumed"
}

// PeerCountError is why the last call of the function of the user's gave no number, nil without.
func (l *Link) PeerCountError() error {
	l.fleet.mu.Lock()
	defer l.fleet.mu.Unlock()
	return l.fleet.askErr
}

// UseShare is Share for a decision that this process makes on its own.
func (l *Link) UseShare() float64 {
	if l.share > 0 {
		return l.share
	}
	if l.fleet.alive.Load() == 0 {
		l.wire.events.assumed(l.fleet.expected)
	}
	l.askPeers()
	return l.Share()
}
