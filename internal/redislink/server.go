package redislink

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

// Server is one Redis server that can fail on its own: the only one, a master of a
// cluster, or a node of a ring. Each has its breaker and its calls in flight, so that one
// that is unavailable takes only its own keys along.
type Server struct {
	Name    string
	Addr    string // "" where there is but one, or it is not known yet
	Breaker *breaker.Breaker
	queue   *queue
	// back is when decisions were made by it again after it was lost; zero while it is lost, nil until then. It
	// is read with each decision, and takes no lock.
	back atomic.Pointer[time.Time]
	// away is that decisions are not made by it since its breaker opened, and lost when it failed
	// last. heard is when the last heartbeat was answered, 0 until then, and unaware until when this
	// process may learn of an outage that it did not see. All are by Link.Now.
	away                 atomic.Bool
	lost, heard, unaware atomic.Int64
	awayTurn             Every       // of heartbeats while it cannot be reached
	beatsAway            atomic.Bool // one of these is under way

	turn  Every    // of heartbeats beside those that count the fleet
	beats census   // of these; the fleet's lock guards it
	_     [64]byte // keeps the counters away from what is only read
	// Counts are for the link's owner.
	Counts [8]atomic.Uint64
}

// OneSlot reports that the server takes keys of one hash slot only in a command.
func (s *Server) OneSlot() bool {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return s.queue.sameSlot
}

// Apart reports whether a command on several keys was rejected, and not executed, because
// they are in several slots, which it notes, or in one that is migrating.
func (s *Server) Apart(err error) bool {
	if crossSlot(err) {
		s.queue.oneSlot()
		return true
	}
	return tryAgain(err)
}

// Answers reports that the server does, as far as is known.
func (s *Server) Answers() bool { return s.Breaker.State() == breaker.Closed }

// maxServers bounds what a topology that keeps changing can leave behind; beyond it, new
// ones share a breaker.
const maxServers = 4096

// others names the server that they share.
const others = "others"

// servers finds the server of a key, and makes it when it is new.
type servers struct {
	wire *wire
	// of names the server of an id as it stands in keys. It must not block. It is nil
	// where there is but one.
	of       func(id string) string
	oneSlot  bool
	settings breaker.Settings
	changed  func(*Server, breaker.Change)

	mu   sync.RWMutex
	all  map[string]*Server
	only *Server
}

func newServers(w *wire, settings breaker.Settings, of func(id string) string, oneSlot bool, changed func(*Server, breaker.Change)) (*servers, error) {
	s := &servers{wire: w, settings: settings, of: of, oneSlot: oneSlot, changed: changed, all: make(map[string]*Server)}
	if _, err := breaker.New(settings); err != nil {
		return nil, err
	}
	if of == nil {
		s.only = s.get("")
	}
	return s, nil
}

func (s *servers) make(name string) *Server {
	set := s.settings
	if name != "" {
		set.Name += "@" + name
	}
	srv := &Server{Name: set.Name, Addr: name}
	set.OnChange = func(ctx context.Context, ch breaker.Change) {
		s.changed(srv, ch)
		s.settings.OnChange(ctx, ch)
	}
	srv.Breaker, _ = breaker.New(set) // the settings were checked
	srv.queue = newQueue(s.wire, set.Name, srv.Breaker, s.oneSlot)
	return srv
}

// forID returns the server of an encoded id.
func (s *servers) forID(id string) *Server {
	if s.only != nil {
		return s.only
	}
	return s.get(s.of(id))
}

func (s *servers) get(name string) *Server {
	s.mu.RLock()
	srv := s.all[name]
	s.mu.RUnlock()
	if srv != nil {
		return srv
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if srv = s.all[name]; srv != nil {
		return srv
	}
	if len(s.all) >= maxServers {
		name = others
		if srv = s.all[name]; srv != nil {
			return srv
		}
	}
	srv = s.make(name)
	s.all[name] = srv
	return srv
}

// on reports that an encoded id is on a server.
func (s *servers) on(srv *Server, id string) bool { return s.only != nil || s.of(id) == srv.Addr }

// list returns the servers seen so far, sorted by name.
func (s *servers) list() []*Server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.all), func(a, b *Server) int { return cmp.Compare(a.Name, b.Name) })
}
