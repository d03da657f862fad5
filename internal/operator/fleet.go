package operator

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limits"
)

// Fleet is who shares the limits of a prefix, as far as Redis knows.
type Fleet struct {
	Prefix string    `json:"prefix"`
	At     time.Time `json:"at"` // by the clock of Redis
	// Processes are those that sent a heartbeat within a minute, and those that publish, by name.
	Processes []Process `json:"processes"`
	// Share is 1 divided by their number, unless WithShare fixes it. Of a key that is new while Redis is unavailable
	// each of them may use the part of it that WithEqualShare says, by default a half.
	Share float64 `json:"share"`
	// Returns are returns from an outage that are under way.
	Returns []Return `json:"returns,omitempty"`
	// Unreadable is how many processes published what cannot be read.
	Unreadable int `json:"unreadable,omitempty"`
	// Sampled is how many processes sampled limiters have.
	Sampled int64 `json:"sampled_processes,omitempty"`
}

// Process is one of a fleet.
type Process struct {
	Name string `json:"name"`
	// Seen is the time since its last heartbeat, or since it published last; 0 also where heartbeats are rare
	// and count for longer.
	Seen Duration `json:"seen"`
	// Beats says that it sent one within a minute.
	Beats bool `json:"beats"`
	// Published is what it publishes of itself (analytics.Publish), if it does.
	Published *analytics.ProcessReport `json:"published,omitempty"`
}

// Return is what the processes of a fleet do after an outage: they wait for each other.
type Return struct {
	Limiter string `json:"limiter"` // what it keeps, as its algorithm
	Back    int64  `json:"back"`    // how many decide by Redis again, or could
	Away    int64  `json:"away"`    // how many cannot yet
}

// Top is the keys that the fleet denied most, by limiter, as its processes have published them.
type Top struct {
	Prefix    string                      `json:"prefix"`
	At        time.Time                   `json:"at"`
	Processes int                         `json:"processes"` // that publish
	Limiters  map[string]analytics.Report `json:"limiters"`
}

// Top reads what the processes publish: of each limiter n keys, or with keys those of them that were denied.
// With a secret, that of WithHashedKeys, a key is searched for by its hash.
func (o *Operator) Top(ctx context.Context, n int, secret []byte, keys ...string) (*Top, error) {
	f, err := analytics.ReadFleet(ctx, o.rdb, o.prefix)
	if err != nil {
		return nil, err
	}
	top := &Top{Prefix: o.prefix, At: f.At, Processes: len(f.Processes), Limiters: map[string]analytics.Report{}}
	for name, r := range f.Denials(math.MaxInt) {
		if len(keys) > 0 {
			r.Keys = slices.DeleteFunc(r.Keys, func(k analytics.Key) bool {
				return !slices.ContainsFunc(keys, func(key string) bool {
					return k.Key == analytics.ShownKey(key, nil) || k.Key == analytics.ShownKey(key, secret)
				})
			})
		}
		r.Keys = r.Keys[:min(n, len(r.Keys))]
		top.Limiters[name] = r
	}
	return top, nil
}

// mostPeerKeys is how many lists of processes a cluster has at most: one on each server.
const mostPeerKeys = 1000

// Fleet reads the heartbeats.
func (o *Operator) Fleet(ctx context.Context) (*Fleet, error) {
	now, err := o.now(ctx)
	if err != nil {
		return nil, err
	}
	f := &Fleet{Prefix: o.prefix, At: now.UTC(), Processes: []Process{}}
	keys := []string{o.names.Peers(0)}
	if _, one := o.rdb.(*redis.Client); !one {
		for i := 1; i < mostPeerKeys; i++ {
			keys = append(keys, o.names.Peers(i))
		}
	}
	lists := make([]*redis.ZSliceCmd, len(keys))
	var sampled *redis.IntCmd
	if err := o.pipelined(ctx, func(p redis.Pipeliner) {
		for i, key := range keys {
			lists[i] = p.ZRangeWithScores(ctx, key, 0, -1)
		}
		sampled = p.ZCard(ctx, o.names.SampledProcesses())
	}); err != nil {
		return nil, err
	}
	f.Sampled = sampled.Val()
	seen := map[string]int64{}
	for i, list := range lists {
		for _, z := range list.Val() {
			name, _ := z.Member.(string)
			seen[name] = max(seen[name], int64(z.Score))
		}
		if len(list.Val()) > 0 {
			if err := o.returns(ctx, keys[i], f); err != nil {
				return nil, err
			}
		}
	}
	published, err := analytics.ReadFleet(ctx, o.rdb, o.prefix)
	if err != nil {
		return nil, err
	}
	f.Unreadable = published.Unreadable
	reports := map[string]*analytics.ProcessReport{}
	for i := range published.Processes {
		reports[published.Processes[i].Process] = &published.Processes[i]
	}
	beats := 0
	for name, at := range seen {
		if age := time.Duration(max(0, now.UnixMicro()-at)) * time.Microsecond; age <= redislink.BeatLife {
			f.Processes = append(f.Processes, Process{name, Duration(age), true, reports[name]})
			delete(reports, name)
			beats++
		}
	}
	for name, r := range reports {
		f.Processes = append(f.Processes, Process{name, Duration(max(0, now.Sub(r.At))), false, r})
	}
	slices.SortFunc(f.Processes, func(a, b Process) int { return cmp.Compare(a.Name, b.Name) })
	if beats > 0 {
		f.Share = 1 / float64(beats)
	}
	return f, nil
}

// returns adds the returns beside a list of processes.
func (o *Operator) returns(ctx context.Context, peers string, f *Fleet) error {
	names := []string{"sampled", "permits"}
	for _, k := range algo.Kinds {
		names = append(names, k.String())
	}
	away, all := make([]*redis.IntCmd, len(names)), make([]*redis.IntCmd, len(names))
	err := o.pipelined(ctx, func(p redis.Pipeliner) {
		for i, name := range names {
			away[i] = p.ZCount(ctx, o.names.Back(peers, name), "-inf", "0")
			all[i] = p.ZCard(ctx, o.names.Back(peers, name))
		}
	})
	for i, name := range names {
		if err == nil && all[i].Val() > 0 {
			f.Returns = append(f.Returns, Return{name, all[i].Val() - away[i].Val(), away[i].Val()})
		}
	}
	return err
}

// Table is a table of named limits.
type Table struct {
	Name    string `json:"table"`
	Version int64  `json:"version"`
	// Limits are as text, by name; Rejected why a limit is not used.
	Limits   map[string]limiter.Limit `json:"limits"`
	Rejected map[string]string        `json:"rejected,omitempty"`
}

// Has reports that the table has a limit of that name, used or not.
func (t Table) Has(name string) bool {
	_, used := t.Limits[name]
	_, rejected := t.Rejected[name]
	return used || rejected
}

// Tables reads the tables of named limits: one, or with an empty name all that there are. To find
// them all, Redis walks over all its keys, a few at a time.
func (o *Operator) Tables(ctx context.Context, name string) ([]Table, error) {
	names := []string{name}
	if name == "" {
		var err error
		if names, err = o.tableNames(ctx); err != nil {
			return nil, err
		}
	}
	out := []Table{}
	for _, name := range names {
		table, err := o.table(name)
		if err != nil {
			return nil, err
		}
		s, err := table.Read(ctx)
		if err != nil {
			return nil, err
		}
		t := Table{Name: name, Version: s.Version, Limits: s.Limits, Rejected: map[string]string{}}
		for name, err := range s.Rejected {
			t.Rejected[name] = err.Error()
		}
		out = append(out, t)
	}
	return out, nil
}

// SetLimit sets a limit of a table; the zero Limit removes it. It returns the version of the table.
func (o *Operator) SetLimit(ctx context.Context, table, name string, l limiter.Limit) (int64, error) {
	t, err := o.table(table)
	if err != nil {
		return 0, err
	}
	if l == (limiter.Limit{}) {
		return t.Remove(ctx, name)
	}
	return t.Put(ctx, name, l)
}

func (o *Operator) table(name string) (*limits.Table, error) {
	return limits.New(o.rdb, name, limits.WithPrefix(o.prefix))
}

// tableNames finds the tables.
func (o *Operator) tableNames(ctx context.Context) (names []string, err error) {
	const any = "*"
	before, after, _ := strings.Cut(o.names.Limits(any), any)
	quoted := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(before)
	scan := func(ctx context.Context, rdb redis.Cmdable) error {
		it := rdb.ScanType(ctx, 0, quoted+any, 1000, "hash").Iterator()
		for it.Next(ctx) {
			names = append(names, strings.TrimSuffix(strings.TrimPrefix(it.Val(), before), after))
		}
		return it.Err()
	}
	one := func(ctx context.Context, rdb *redis.Client) error { return scan(ctx, rdb) }
	switch rdb := o.rdb.(type) {
	case *redis.ClusterClient:
		err = oneByOne(ctx, rdb.ForEachMaster, one)
	case *redis.Ring:
		err = oneByOne(ctx, rdb.ForEachShard, one)
	default:
		err = scan(ctx, rdb)
	}
	slices.Sort(names)
	// What a name cannot be is a key of another program, and must not hide the tables.
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		_, err := o.table(name)
		return err != nil
	}), err
}

// oneByOne calls fn for one server after the other of those that each goes through.
func oneByOne(ctx context.Context, each func(context.Context, func(context.Context, *redis.Client) error) error, fn func(context.Context, *redis.Client) error) error {
	turn := make(chan struct{}, 1)
	return each(ctx, func(ctx context.Context, c *redis.Client) error {
		turn <- struct{}{}
		defer func() { <-turn }()
		return fn(ctx, c)
	})
}
