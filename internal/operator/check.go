package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/random"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

// Level says how much something matters.
type Level string

// The levels.
const (
	Failing Level = "failing" // decisions are local now, or wrong
	Risk    Level = "risk"    // that will happen one day, or costs something now
	Note    Level = "note"    // good to know
)

// Finding is something in a Redis that hurts, or will.
type Finding struct {
	ID     string `json:"id"` // the same in each version
	Level  Level  `json:"level"`
	Server string `json:"server"`
	// What is found, what Effect that has on limits, and what to Do.
	What   string `json:"what"`
	Effect string `json:"effect"`
	Do     string `json:"do"`
}

// Checked is what Check has found.
type Checked struct {
	At      time.Time `json:"at"`
	Servers []Server  `json:"servers"`
	// Findings are those that fail first.
	Findings []Finding `json:"findings"`
}

// Worst is the level of the worst finding, "" without any.
func (c *Checked) Worst() Level {
	if len(c.Findings) == 0 {
		return ""
	}
	return c.Findings[0].Level
}

// Server is what was measured of one server.
type Server struct {
	Addr    string   `json:"addr"`
	Version string   `json:"version"`
	Role    string   `json:"role"`
	P50     Duration `json:"round_trip_p50"`
	P99     Duration `json:"round_trip_max"`
	// Clock is by how much the clock of Redis is ahead of this machine's.
	Clock Duration `json:"clock_ahead"`
}

// facts are what is known of one server.
type facts struct {
	Server
	info, config       map[string]string
	infoErr, configErr error
	// scripts are the errors of trials: of each algorithm, a peek, a heartbeat.
	scripts map[string]error
	// remote is that the server is not on this machine; tls that the connection is one of TLS.
	remote, tls bool
	clustered   bool // the client is one of a cluster
}

// mostTries is how many ids are tried until one is in a slot of a server: enough for one that has a hundredth of them.
const mostTries = 1000

// pings is how many round trips are measured.
const pings = 30

// Check examines the servers: of a cluster each master. It writes a key that lives for two
// seconds, to see that limiters can.
func (o *Operator) Check(ctx context.Context) (*Checked, error) {
	c := &Checked{At: time.Now().UTC(), Servers: []Server{}, Findings: []Finding{}}
	one := func(ctx context.Context, rdb *redis.Client) error {
		f, err := o.examine(ctx, rdb)
		if err != nil {
			return err
		}
		c.Servers = append(c.Servers, f.Server)
		c.Findings = append(c.Findings, f.findings()...)
		return nil
	}
	var err error
	switch rdb := o.rdb.(type) {
	case *redis.ClusterClient:
		err = oneByOne(ctx, rdb.ForEachMaster, one)
	case *redis.Client:
		err = one(ctx, rdb)
	default:
		err = fmt.Errorf("a client of type %T cannot be checked: must be one of a server, a cluster or sentinels", o.rdb)
	}
	order := []Level{Failing, Risk, Note}
	slices.SortStableFunc(c.Findings, func(a, b Finding) int { return slices.Index(order, a.Level) - slices.Index(order, b.Level) })
	slices.SortFunc(c.Servers, func(a, b Server) int { return strings.Compare(a.Addr, b.Addr) })
	return c, err
}

// findings are what the rules find.
func (f *facts) findings() (out []Finding) {
	add := func(found *Finding) {
		if found == nil || slices.ContainsFunc(out, func(other Finding) bool { return other.ID == found.ID }) {
			return
		}
		found.Server = f.Addr
		out = append(out, *found)
	}
	for _, r := range rules {
		add(r.of(f))
	}
	for _, trial := range trials {
		add(trial(f))
	}
	return out
}

// examine learns the facts of a server.
func (o *Operator) examine(ctx context.Context, rdb *redis.Client) (*facts, error) {
	f := &facts{info: map[string]string{}, config: map[string]string{}, scripts: map[string]error{}}
	f.Addr, f.tls = rdb.Options().Addr, rdb.Options().TLSConfig != nil
	_, f.clustered = o.rdb.(*redis.ClusterClient)
	if err := rdb.Ping(ctx).Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") && !isReply(err) {
		return nil, err
	}
	if text, err := rdb.Info(ctx, "all").Result(); err == nil {
		f.info = infoOf(text)
	} else if f.infoErr = err; !isReply(err) {
		return nil, err
	}
	if f.info["cluster_enabled"] == "1" {
		if text, err := rdb.ClusterInfo(ctx).Result(); err == nil {
			maps.Copy(f.info, infoOf(text))
		}
	}
	f.config, f.configErr = rdb.ConfigGet(ctx, "*").Result()
	f.Version, f.Role = f.info["redis_version"], f.info["role"]
	if f.Addr == "FailoverClient" {
		f.Addr = "the master of the sentinels"
	}
	f.remote = !strings.HasPrefix(f.Addr, "127.") && !strings.HasPrefix(f.Addr, "localhost:") && !strings.HasPrefix(f.Addr, "[::1]") && !strings.HasPrefix(f.Addr, "/")
	if err := f.measure(ctx, rdb); err != nil {
		return nil, err
	}
	o.try(ctx, rdb, f)
	return f, nil
}

// measure takes round trips, and compares the clocks in the middle of the shortest.
func (f *facts) measure(ctx context.Context, rdb *redis.Client) error {
	var took []time.Duration
	for range pings {
		start := time.Now()
		at, err := rdb.Time(ctx).Result()
		trip := time.Since(start)
		if err != nil && !isReply(err) {
			return err
		}
		if err == nil && (len(took) == 0 || trip < slices.Min(took)) {
			f.Clock = Duration(at.Sub(start.Add(trip / 2)))
		}
		took = append(took, trip)
	}
	slices.Sort(took)
	f.P50, f.P99 = Duration(took[len(took)/2]), Duration(took[len(took)-1])
	return nil
}

// try runs what limiters run, on a key that does not live longer than two seconds.
func (o *Operator) try(ctx context.Context, rdb *redis.Client, f *facts) {
	id := o.idOn(ctx, rdb)
	if id == "" {
		return // it has no slots
	}
	for _, kind := range algo.Kinds {
		p, _ := algo.Limit{Kind: kind, N: 1000, Per: 1_000_000, Burst: 1000}.Params() // is valid
		item := lua.Item{Keys: o.names.KeysOf(kind, id), Params: lua.NewArgs(p), Cost: 1}
		f.scripts[kind.String()] = o.do(ctx, &lua.Decide{Nonce: "check", Items: []lua.Item{item}})
		item.Cost = 0
		if err := o.do(ctx, &lua.Decide{Nonce: "check", Items: []lua.Item{item}}); err != nil {
			f.scripts["peek"] = err
		}
	}
	if !f.clustered {
		f.scripts["heartbeat"] = o.do(ctx, &lua.Beat{Key: o.names.Peers(0), ID: id})
	}
}

// idOn returns an id whose keys are on a server: of a cluster in one of its hash slots. It is "" where none was found.
func (o *Operator) idOn(ctx context.Context, rdb *redis.Client) string {
	all, clustered := o.rdb.(*redis.ClusterClient)
	for range mostTries {
		id := fmt.Sprintf("check-%016x", random.Uint64())
		if !clustered {
			return id
		}
		if master, err := all.MasterForKey(ctx, o.names.Probe(id)); err == nil && master.Options().Addr == rdb.Options().Addr {
			return id
		}
	}
	return ""
}

// isReply reports whether Redis has answered, with an error.
func isReply(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// num is a number of INFO or CONFIG, 0 where there is none.
func num(m map[string]string, name string) int64 {
	n, _ := strconv.ParseInt(m[name], 10, 64)
	return n
}

// denied returns the trials that failed, in words, and the first error.
func (f *facts) denied() (what []string, first error) {
	var names []string
	for name, err := range f.scripts {
		if err != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if first == nil {
			first = f.scripts[name]
		}
	}
	return names, first
}

// budget is that of limiters.
const budget = redislink.DefaultBudget
