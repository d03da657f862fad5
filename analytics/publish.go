package analytics

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/repeat"
	"github.com/holdfast-go/holdfast/limiter"
)

const (
	// DefaultPublishInterval is the interval without WithPublishInterval.
	DefaultPublishInterval = 10 * time.Second
	// DefaultPublishedKeys is how many keys a process publishes without WithPublishedKeys.
	DefaultPublishedKeys = 50

	// publishedFor is how many intervals a report is kept, and publishWithin how long a call may take, where the
	// client's deadlines hold.
	publishedFor  = 3
	publishWithin = 2 * time.Second
	// mostSources bounds what one process publishes: of each source, it is about 1 KB beside the keys.
	mostSources = 100
)

// Source is what a process publishes of one limiter. Fields that are nil are left out.
type Source struct {
	// Top has the keys that are denied most.
	Top *Top
	// Health is the method of the limiter, and Limit its limit at one moment.
	Health func() limiter.Health
	Limit  func() limiter.Limit
}

// PublishOption is an option of Publish.
type PublishOption func(*publishConfig)

type publishConfig struct {
	prefix, process string
	interval        time.Duration
	keys            int
}

// WithPublishPrefix sets the first part of the key in Redis, by default "holdfast": that of the limiters,
// so that the command holdfast finds both. The rules are those of limiter.WithPrefix.
func WithPublishPrefix(prefix string) PublishOption {
	return func(c *publishConfig) { c.prefix = prefix }
}

// WithPublishProcess names the process, by default as in its heartbeat: where limiter.WithProcess is used, give both
// the same name, of 1 to 64 bytes.
func WithPublishProcess(id string) PublishOption { return func(c *publishConfig) { c.process = id } }

// WithPublishInterval sets how often a process publishes, by default every 10 s: from 1 s to 10 min. The interval
// of each process is up to a tenth shorter or longer, so that a fleet does not publish at once.
func WithPublishInterval(d time.Duration) PublishOption {
	return func(c *publishConfig) { c.interval = d }
}

// WithPublishedKeys sets how many keys a process publishes, of all sources together, by default 50; from 1 to 1000.
// Each takes up to about 500 bytes of Redis for each process.
func WithPublishedKeys(n int) PublishOption { return func(c *publishConfig) { c.keys = n } }

func newPublishConfig(opts []PublishOption) (*publishConfig, error) {
	c := &publishConfig{prefix: redislink.DefaultPrefix, process: redislink.ProcessID(), interval: DefaultPublishInterval, keys: DefaultPublishedKeys}
	if err := configerr.Apply(c, opts); err != nil {
		return nil, err
	}
	rule := lua.CheckPrefix(c.prefix)
	switch {
	case rule != "":
		return nil, configerr.New("prefix", c.prefix, rule)
	case c.process == "" || len(c.process) > 64:
		return nil, configerr.New("process", c.process, "must be 1 to 64 bytes")
	case c.interval < time.Second || c.interval > 10*time.Minute:
		return nil, configerr.New("interval", c.interval, "must be between 1s and 10m")
	case c.keys < 1 || c.keys > 1000:
		return nil, configerr.New("published keys", c.keys, "must be 1 to 1000")
	}
	return c, nil
}

// Publisher publishes what a process knows of its limiters, for ReadFleet and the command holdfast. It is safe for
// concurrent use. Make one with Publish; the zero value is not usable.
type Publisher struct {
	*publishConfig
	rdb        redis.UniversalClient
	names      *lua.Namer
	scripts    *lua.Client
	sources    map[string]Source
	started    time.Time
	background *redislink.Background
	task       *repeat.Task
	err        atomic.Pointer[error]
}

// Publish publishes the sources, by their names, now and once in each interval, in the background: one call of a
// script, off the path of every decision. While Redis is unavailable nothing is published, and nothing
// else happens: see Publisher.Err. What is published is a JSON text, which is gone three intervals after
// the last one, or with Close. The keys of callers are in it: use WithHashedKeys where they are personal data.
// The client stays the caller's.
//
// The error matches limiter.ErrInvalidConfig: there are 1 to 100 sources, with names that are not empty.
func Publish(rdb redis.UniversalClient, sources map[string]Source, opts ...PublishOption) (*Publisher, error) {
	c, err := newPublishConfig(opts)
	if err != nil {
		return nil, configerr.In("analytics", err)
	}
	if configerr.IsNil(rdb) {
		return nil, configerr.In("analytics", configerr.New("client", "nil", "must be a go-redis client"))
	}
	if len(sources) < 1 || len(sources) > mostSources {
		return nil, configerr.In("analytics", configerr.New("sources", len(sources), "must be 1 to %d", mostSources))
	}
	for name, s := range sources {
		if name == "" || len(name) > 64 {
			return nil, configerr.In("analytics", configerr.New("name", name, "must be 1 to 64 bytes"))
		}
		if s.Top != nil && s.Top.capacity == 0 {
			return nil, configerr.In("analytics", configerr.New("top", name, "must be made by New"))
		}
	}
	p := &Publisher{
		publishConfig: c, rdb: rdb, names: lua.NewNamer(c.prefix), scripts: lua.NewClient(rdb),
		sources: maps.Clone(sources), started: time.Now(), background: redislink.NewBackground(),
	}
	p.task = repeat.Always(random.About(c.interval), p.background.Start, p.publish)
	return p, nil
}

// Err returns why nothing was published the last time; nil if it was, or has not begun.
func (p *Publisher) Err() error {
	if err := p.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Close ends the publishing and removes what was published, as far as Redis answers. It waits for a call that
// is under way; the client's own timeouts bound that. Closing twice is harmless.
func (p *Publisher) Close() error {
	p.task.End()
	p.background.Close()
	_ = p.send(context.Background(), &lua.Publish{Names: p.names, Process: p.process}) // else it expires
	return nil
}

// publish publishes what there is now.
func (p *Publisher) publish(ctx context.Context) {
	text, err := json.Marshal(p.report())
	if err == nil {
		life := publishedFor * p.interval.Microseconds()
		err = p.send(ctx, &lua.Publish{Names: p.names, Process: p.process, Life: life, Text: text})
	}
	if ctx.Err() == nil {
		p.err.Store(&err)
	}
}

func (p *Publisher) send(ctx context.Context, cmd *lua.Publish) error {
	ctx, cancel := context.WithTimeout(ctx, publishWithin)
	defer cancel()
	errs := make([]error, 1)
	p.scripts.Do(ctx, []lua.Command{cmd}, errs)
	return errs[0]
}

// report is what the process knows now.
func (p *Publisher) report() ProcessReport {
	host, _ := os.Hostname()
	r := ProcessReport{Process: p.process, Host: host, PID: os.Getpid(), Program: filepath.Base(os.Args[0]), Started: p.started.Round(time.Second).UTC()}
	each := max(1, p.keys/len(p.sources))
	for _, name := range slices.Sorted(maps.Keys(p.sources)) {
		s, of := p.sources[name], LimiterReport{Name: name}
		if s.Limit != nil {
			of.Limit = s.Limit().String()
		}
		if s.Health != nil {
			of.State = stateOf(s.Health())
		}
		if s.Top != nil {
			of.Denials = s.Top.published(each)
		}
		r.Limiters = append(r.Limiters, of)
	}
	return r
}

// published returns the n keys that were denied most, and how often any other may have been.
func (t *Top) published(n int) *Denials {
	all := t.Report(t.capacity)
	d := &Denials{Report: all}
	if len(all.Keys) == t.capacity {
		d.Others = 2 * all.Denied / int64(t.capacity)
	}
	for i := n; i < len(all.Keys); i++ {
		d.Others = max(d.Others, all.Keys[i].Denied)
	}
	d.Keys = all.Keys[:min(n, len(all.Keys))]
	return d
}

// stateOf is what others need to know of the health of a limiter.
func stateOf(h limiter.Health) *LimiterState {
	s := &LimiterState{Processes: h.Processes, Share: h.Share, Owed: h.Owed, Decisions: map[string]uint64{}, Servers: []ServerState{}}
	for source, n := range h.Decisions {
		s.Decisions[source.String()] = n
	}
	for _, srv := range h.Servers {
		s.Servers = append(s.Servers, ServerState{Name: srv.Name, State: srv.State.String(), Since: srv.Since.UTC().Round(time.Millisecond), LastFailure: srv.LastFailure.String()})
	}
	return s
}

// ProcessReport is what a process has published of itself.
type ProcessReport struct {
	Process string `json:"process"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	// Started is when it began to publish, by its own clock, and At when it published this, by that of Redis.
	Started time.Time `json:"started"`
	At      time.Time `json:"at"`
	// Limiters are its sources, by name.
	Limiters []LimiterReport `json:"limiters"`
}

// LimiterReport is what a process knows of one limiter.
type LimiterReport struct {
	Name    string        `json:"name"`
	Limit   string        `json:"limit,omitempty"` // as text
	State   *LimiterState `json:"state,omitempty"`
	Denials *Denials      `json:"denials,omitempty"`
}

// LimiterState is a part of limiter.Health.
type LimiterState struct {
	Servers   []ServerState     `json:"servers"`
	Processes int               `json:"processes"`
	Share     float64           `json:"share"`
	Owed      int               `json:"owed"`
	Decisions map[string]uint64 `json:"decisions"` // by the name of the source
}

// ServerState is the breaker of a Redis server.
type ServerState struct {
	Name        string    `json:"name"`
	State       string    `json:"state"` // as breaker.State names it
	Since       time.Time `json:"since"`
	LastFailure string    `json:"last_failure"` // as breaker.Class names it
}

// Denials are the keys that a process denied most.
type Denials struct {
	Report
	// Others is the most that any key can have been denied that is not in Keys.
	Others int64 `json:"others"`
}
