package redislink_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/sim"
)

// cluster makes a client one of a cluster, as far as commands on several keys are rejected: those whose keys are
// in several slots or, where a slot migrates, all.
type cluster struct {
	migrates bool
	rejected int
}

type rejection string

func (r rejection) Error() string { return string(r) }
func (rejection) RedisError()     {}

func (c *cluster) rejects(cmd redis.Cmder) bool {
	args := cmd.Args()
	n, ok := 0, false
	if len(args) > 3 && strings.HasPrefix(cmd.Name(), "eval") {
		n, ok = args[2].(int)
	}
	if !ok || n < 2 {
		return false
	}
	slots := map[int]bool{}
	for _, key := range args[3 : 3+n] {
		_, id, _ := strings.Cut(*key.(*string), "{")
		id, _, _ = strings.Cut(id, "}")
		slots[redislink.Slot(id)] = true
	}
	switch {
	case c.migrates && len(slots) != n:
		return false // all of a request for several limits of one key: they are on one side
	case c.migrates:
		cmd.SetErr(rejection("TRYAGAIN Multiple keys request during rehashing of slot"))
	case len(slots) > 1:
		cmd.SetErr(rejection("CROSSSLOT Keys in request don't hash to the same slot"))
	default:
		return false
	}
	c.rejected++
	return true
}

func (*cluster) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *cluster) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.rejects(cmd) {
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (c *cluster) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		sent := slices.DeleteFunc(slices.Clone(cmds), c.rejects)
		err := error(nil)
		if len(sent) > 0 {
			err = next(ctx, sent)
		}
		for _, cmd := range cmds {
			err = cmp.Or(err, cmd.Err())
		}
		return err
	}
}

// mixed is requests of several kinds, on a few keys, as rng draws them: of one kind on a key, because what is sent
// again comes after what was not rejected. at is when units of a key were taken last.
func mixed(rng *rand.Rand, round int, l *redislink.Link, limits []*lua.Args, at map[string]int64) (ops []*redislink.Op) {
	for range 4 + rng.IntN(30) {
		k, a, n := rng.IntN(6), limits[rng.IntN(len(limits))], int64(1+rng.IntN(2))
		id := fmt.Sprint("k", k, a.Kind)
		o := &redislink.Op{ID: id}
		switch what := rng.IntN(5); {
		case round%3 == 1: // what was taken in the round before
			if taken := at[id]; taken > 0 {
				o.Taken = &lua.Taken{Keys: l.Names.KeysOf(a.Kind, id), Params: *a, Units: n, At: taken}
				break
			}
			continue
		case round%3 == 2: // how it is now
			o.Args, o.Keys = a, l.Names.KeysOf(a.Kind, id)
		case what < 2:
			o.Args, o.Keys, o.Cost, o.Count = a, l.Names.KeysOf(a.Kind, id), n, int64(rng.IntN(3))
		case what == 2:
			o.ID = "several" + id
			second := limits[(slices.Index(limits, a)+1)%len(limits)]
			o.All = []lua.Item{{Keys: l.Names.KeysOf(a.Kind, o.ID), Params: *a, Cost: n}, {Keys: l.Names.KeysOf(second.Kind, o.ID), Params: *second, Cost: 1}}
		case what == 3:
			o.Keep = &lua.Holders{ID: id, Key: l.Names.Permits(id), Callers: []string{"x", fmt.Sprint(rng.IntN(4))}[:1+rng.IntN(2)]}
			o.TTL = 600_000_000
		case k%2 == 0:
			o.ID = "left" + id
			o.Leave = &lua.Leaver{ID: o.ID, Key: l.Names.Permits(o.ID), Caller: fmt.Sprint(rng.IntN(4)), Queued: rng.IntN(2) == 0}
		default:
			o.ID = "asked" + id
			o.Permits = &lua.PermitAsk{ID: o.ID, Key: l.Names.Permits(o.ID), Most: 3, TTL: 600_000_000, Callers: []string{fmt.Sprint(rng.IntN(9)), "y"}[:1+rng.IntN(2)]}
		}
		ops = append(ops, o)
	}
	return ops
}

// TestApartIsAnsweredTheSame: requests whose command a server rejects because of its keys get the answers that they
// would have had together, whatever they ask for, each once.
func TestApartIsAnsweredTheSame(t *testing.T) {
	for _, migrates := range []bool{false, true} {
		rejected, answers := 0, map[string]int{}
		for seed := range uint64(40) {
			sim.Test(t, func(t *testing.T, r *sim.Redis) {
				apart := &cluster{migrates: migrates}
				var said [2][]string
				for side, server := range []*sim.Redis{r, sim.NewRedis()} {
					l := process(t, server, "a", func(c *redislink.Config) {
						c.Budget, c.MaxInFlight = time.Second, 1
						c.OnCall = func(_ context.Context, call redislink.Call) {
							if call.Class != breaker.ClassOK {
								t.Errorf("%+v", call)
							}
						}
						if side == 0 {
							c.Client.(*redis.Client).AddHook(apart)
						}
					})
					rng := rand.New(rand.NewPCG(seed, 3))
					limits := []*lua.Args{limitOf(t, algo.GCRA, 12), limitOf(t, algo.FixedWindow, 9), limitOf(t, algo.SlidingWindowLog, 15)}
					at := map[string]int64{}
					for round := range 6 {
						ops := mixed(rng, round, l, limits, at)
						for i, err := range l.AskAll(t.Context(), ops) {
							o := ops[i]
							switch {
							case err != nil:
								t.Errorf("%d: %v", i, err)
							case o.Args != nil:
								if o.Out.Allowed && o.Cost > 0 {
									at[o.ID] = o.At
								}
								answers["decisions"]++
								said[side] = append(said[side], fmt.Sprint(o.Out.Allowed, o.Out.Remaining, o.Out.RetryAfter > 0, o.Whole.Remaining, o.Admitted, o.Behind, o.At > 0))
							case o.All != nil:
								answers["sets"]++
								text := fmt.Sprint(len(o.Outs))
								for k, out := range o.Outs {
									text += fmt.Sprint(out.Allowed, out.Remaining, o.All[k].Admitted)
								}
								said[side] = append(said[side], text)
							case o.Taken != nil:
								answers["given"] += int(o.Given)
								said[side] = append(said[side], fmt.Sprint(o.Given))
							case o.Keep != nil:
								answers["kept"]++
								said[side] = append(said[side], fmt.Sprint(o.Lost))
							case o.Permits != nil:
								answers["permits"]++
								said[side] = append(said[side], fmt.Sprint(o.Got.Granted, o.Got.Held, o.Got.Ahead))
							}
						}
						time.Sleep(time.Second)
						if round%3 == 1 { // for each unit, what was produced since is not given back
							time.Sleep(30 * time.Second)
							clear(at)
						}
					}
				}
				if !slices.Equal(said[0], said[1]) {
					for i := range said[0] {
						if said[0][i] != said[1][i] {
							t.Fatalf("seed %d, %d. answer: %s apart, %s together", seed, i, said[0][i], said[1][i])
						}
					}
				}
				rejected += apart.rejected
			})
		}
		if rejected < 100 || answers["decisions"] < 1000 || answers["sets"] < 500 || answers["given"] < 100 || answers["kept"] < 500 || answers["permits"] < 200 {
			t.Errorf("migrating %v: %d commands were rejected; %v", migrates, rejected, answers)
		}
	}
}

// TestPartsOfACommandFail: what was charged apart before the connection was lost is answered, and what may have been
// charged is an error.
func TestPartsOfACommandFail(t *testing.T) {
	sim.Test(t, func(t *testing.T, r *sim.Redis) {
		l := process(t, r, "a", func(c *redislink.Config) {
			c.MaxInFlight = 1
			c.Client.(*redis.Client).AddHook(&cluster{})
		})
		gcra, window := limitOf(t, algo.GCRA, 12), limitOf(t, algo.FixedWindow, 9)
		var ops []*redislink.Op
		for i := range 20 {
			id := fmt.Sprint("k", i)
			o := &redislink.Op{ID: id}
			switch i % 4 {
			case 0:
				o.Args, o.Keys, o.Cost = gcra, l.Names.KeysOf(gcra.Kind, id), 1
			case 1:
				o.All = []lua.Item{{Keys: l.Names.KeysOf(gcra.Kind, id), Params: *gcra, Cost: 1}, {Keys: l.Names.KeysOf(window.Kind, id), Params: *window, Cost: 1}}
			case 2:
				o.Taken = &lua.Taken{Keys: l.Names.KeysOf(gcra.Kind, id), Params: *gcra, Units: 1}
			case 3:
				o.Keep, o.TTL = &lua.Holders{ID: id, Key: l.Names.Permits(id), Callers: []string{"x"}}, 1000
			}
			ops = append(ops, o)
		}
		r.Set(func(h *sim.Health) { h.RejectsWrites = "OOM command not allowed when used memory > 'maxmemory'" })
		for i, err := range l.AskAll(t.Context(), ops) {
			if ops[i].Taken != nil && err == nil && ops[i].Given == 0 {
				continue // which writes nothing
			}
			failed, ok := errors.AsType[*redislink.Error](err)
			if !ok || failed.Class != breaker.ClassReadOnly || !redislink.NeverExecuted(err) || len(ops[i].Outs) != 0 || ops[i].Given != 0 || ops[i].Out.Allowed {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}
