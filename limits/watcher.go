package limits

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/repeat"
	"github.com/holdfast-go/holdfast/limiter"
)

const (
	// DefaultInterval is the interval without WithInterval.
	DefaultInterval = 5 * time.Second
	// readWithin is how long a read may take, where the client's deadlines hold.
	readWithin = 2 * time.Second
)

// WatchOption is an option of Table.Watch.
type WatchOption func(*watchConfig)

type watchConfig struct {
	interval time.Duration
	check    func(name string, l limiter.Limit) error
	logger   *slog.Logger
}

// WithInterval sets how often a process reads the table, by default every 5 s: from 100 ms to
// 1 h. The interval of each process is up to a tenth shorter or longer, so that a fleet that
// started together does not read together.
func WithInterval(d time.Duration) WatchOption { return func(c *watchConfig) { c.interval = d } }

// WithCheck rejects a limit of the table for which check returns an error: one that leaves no
// room for the lease or the critical headroom of the limiter, say, or has another algorithm. It is called
// in the background, by one goroutine at a time. By default each valid limit is used.
func WithCheck(check func(name string, l limiter.Limit) error) WatchOption {
	return func(c *watchConfig) { c.check = check }
}

// WithLogger sets where changes are logged, by default slog.Default.
func WithLogger(l *slog.Logger) WatchOption { return func(c *watchConfig) { c.logger = l } }

func newWatchConfig(opts []WatchOption) (*watchConfig, error) {
	c := &watchConfig{interval: DefaultInterval}
	if err := configerr.Apply(c, opts); err != nil {
		return nil, err
	}
	if c.interval < 100*time.Millisecond || c.interval > time.Hour {
		return nil, configerr.New("interval", c.interval, "must be between 100ms and 1h")
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	return c, nil
}

// Watcher knows the limits of a table, as they were read last. It is safe for concurrent use.
// Make one with Table.Watch; the zero value is not usable.
type Watcher struct {
	*watchConfig
	table      *Table
	own        map[string]limiter.Limit // the program's
	background *redislink.Background
	task       *repeat.Task
	live       atomic.Pointer[state]
}

// state is what was read last. Its maps do not change.
type state struct {
	Health
	rejected map[string]error
}

// Health is what a watcher knows at one moment.
type Health struct {
	// Version is that of the table when it was read last, 0 before that and where there is no table.
	Version int64
	// ReadAt is when the table was read last; it is zero if it never was.
	ReadAt time.Time
	// Err is why the last read failed; nil if it did not. The limits are those of before then.
	Err error
	// Limits are the limits in use, by name.
	Limits map[string]limiter.Limit
}

// Watch reads the table now, in the background, and then once in each interval. own are the limits
// of the program by name: they hold until the table was read, and for names that it does not have.
//
// A limit in the table that cannot be read, or that the check rejects, changes nothing, and is logged
// once: the last good one stays. While Redis is unavailable all stay. When the table is gone, because
// Redis lost its data or because it was deleted, the limits of the program hold again, and that is
// logged: a process that starts then knows no others, and all processes should have the same.
//
// The error matches limiter.ErrInvalidConfig: names must be as Put requires, and limits valid.
func (t *Table) Watch(own map[string]limiter.Limit, opts ...WatchOption) (*Watcher, error) {
	c, err := newWatchConfig(opts)
	if err != nil {
		return nil, configerr.In(pkg, err)
	}
	for name, l := range own {
		if err := checkName("name", name); err != nil {
			return nil, err
		}
		if err := checkLimit(name, l); err != nil {
			return nil, err
		}
	}
	w := &Watcher{watchConfig: c, table: t, own: map[string]limiter.Limit{}, background: redislink.NewBackground()}
	maps.Copy(w.own, own)
	w.live.Store(&state{Health: Health{Limits: w.own}})
	w.task = repeat.Always(random.About(c.interval), w.background.Start, w.read)
	return w, nil
}

// For returns the limit of a name, and the zero Limit, by which limiters mean their own, of a name that
// neither the table nor the program has. It does not wait, and costs no allocation.
func (w *Watcher) For(name string) limiter.Limit { return w.live.Load().Limits[name] }

// Health reports without asking Redis.
func (w *Watcher) Health() Health {
	h := w.live.Load().Health
	h.Limits = maps.Clone(h.Limits)
	return h
}

// Close ends the reading. It waits for a read that is under way; the client's own timeouts bound
// that. The limits stay as they are. Closing twice is harmless.
func (w *Watcher) Close() error {
	w.task.End()
	w.background.Close()
	return nil
}

// read takes over what the table has.
func (w *Watcher) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	s, err := w.table.Read(ctx)
	before := w.live.Load()
	if err != nil {
		w.failed(ctx, before, err)
		return
	}
	next := &state{Health: Health{Version: s.Version, ReadAt: time.Now(), Limits: maps.Clone(w.own)}, rejected: s.Rejected}
	for name, l := range s.Limits {
		if w.check != nil {
			if err := w.check(name, l); err != nil {
				next.rejected[name] = err
				continue
			}
		}
		next.Limits[name] = l
	}
	for name := range next.rejected {
		if l := before.Limits[name]; l != (limiter.Limit{}) {
			next.Limits[name] = l
		}
	}
	w.live.Store(next)
	w.log(before, next, s.gone(before.Version))
}

// failed keeps what there is. An outage is logged by the limiters; what is no outage would not
// be known to those who set limits.
func (w *Watcher) failed(ctx context.Context, before *state, err error) {
	next := *before
	next.Err = err
	w.live.Store(&next)
	if class := breaker.Classify(ctx, err); before.Err == nil && (class == breaker.ClassPermission || class == breaker.ClassBug) {
		w.logger.Error("holdfast: limits cannot be read; keeping the last ones", "table", w.table.name, "error", err)
	}
}

// log reports what has changed since before.
func (w *Watcher) log(before, next *state, gone bool) {
	for _, name := range slices.Sorted(maps.Keys(next.rejected)) {
		err := next.rejected[name]
		if old := before.rejected[name]; old == nil || old.Error() != err.Error() {
			w.logger.Warn("holdfast: limit rejected; keeping the last good one", "table", w.table.name, "name", name, "error", err)
		}
	}
	if gone {
		w.logger.Warn("holdfast: limits are gone from redis; using those of the program", "table", w.table.name, "version", before.Version)
	}
	all := maps.Clone(before.Limits)
	maps.Copy(all, next.Limits)
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if old, l := before.Limits[name], next.Limits[name]; old != l {
			changed = append(changed, fmt.Sprintf("%s: %v (was %v)", name, l, old))
		}
	}
	if len(changed) > 0 {
		w.logger.Info("holdfast: limits changed", "table", w.table.name, "version", next.Version, "changed", strings.Join(changed, "; "))
	}
}
