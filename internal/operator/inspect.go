package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/limiter"
)

// Key is what Redis holds for one key of the callers'.
type Key struct {
	Prefix string    `json:"prefix"`
	Key    string    `json:"key"`
	At     time.Time `json:"at"` // by the clock of Redis
	// Limits has an entry for each algorithm, and each part of a split key.
	Limits []State `json:"limits"`
	// Permits are those of a semaphore, nil where there is none.
	Permits *Permits `json:"permits,omitempty"`
	// SampledPerSecond is what the fleet asks for, as sampled limiters report it.
	SampledRate int64 `json:"sampled_rate,omitempty"`
	// Learnt says that there are quotas which were learnt from answers of a server.
	Learnt bool `json:"learnt,omitempty"`
}

// State is what is stored under one algorithm.
type State struct {
	Redis     string `json:"redis_key"`
	Algorithm string `json:"algorithm"`
	// Part is the number of the part of a split key, from 0; nil of a whole key.
	Part *int `json:"part,omitempty"`
	// Limit is the limit that Remaining and RetryAfter are of: the one that was asked about, the one that
	// processes publish if it has the rate of the state, or what the state says. Rate is what the state says; empty where it does not.
	Limit string `json:"limit,omitempty"`
	Rate  string `json:"rate,omitempty"`
	// Used is how many units count now. Remaining, and RetryAfter of one unit, are there where the
	// limit is known: Redis holds that of buckets alone.
	Used       int64     `json:"used"`
	Remaining  *int64    `json:"remaining,omitempty"`
	RetryAfter *Duration `json:"retry_after,omitempty"`
	ResetAfter Duration  `json:"reset_after"`
	BlockedFor Duration  `json:"blocked_for"`
	// Since is when it was charged first.
	Since *time.Time `json:"since,omitempty"`
	// Expires is the time to live of the key in Redis, 0 of one that has none.
	Expires Duration `json:"expires_in"`
	// Broken is why the key does not hold what it should.
	Broken string `json:"broken,omitempty"`

	kind   algo.Kind
	params algo.Params // of the state
	keys   lua.Keys
}

// Permits are those of a semaphore.
type Permits struct {
	Redis   string   `json:"redis_key"`
	Held    int64    `json:"held"`
	Waiting int64    `json:"waiting"`
	LastEnd Duration `json:"last_ends_in"`
	Expires Duration `json:"expires_in"`
}

// Duration is a time.Duration that JSON has in seconds.
type Duration time.Duration

// MarshalJSON returns the seconds.
func (d Duration) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%g", time.Duration(d).Seconds()), nil
}

func micros(us int64) Duration { return Duration(algo.Duration(us)) }

// Question is what Inspect is asked about beside a key. The zero value is every algorithm.
type Question struct {
	// Limit is by which to say what remains; the zero value is what Redis knows of it.
	Limit limiter.Limit
	// Shards is the number of parts of the limiter's keys (WithKeyShards), 0 if it is not known.
	Shards int

	published bool // the limit is what a process publishes
}

// published returns the limits that processes publish of limiters of the prefix, by algorithm: those of which
// all say the same.
func (o *Operator) published(ctx context.Context) (map[string]limiter.Limit, error) {
	f, err := analytics.ReadFleet(ctx, o.rdb, o.prefix)
	if err != nil {
		return nil, err
	}
	out, differ := map[string]limiter.Limit{}, map[string]bool{}
	for _, p := range f.Processes {
		for _, of := range p.Limiters {
			l, err := limiter.ParseLimit(of.Limit)
			if err != nil || of.State == nil || len(of.State.Servers) == 0 {
				continue
			}
			if prefix, _, _ := strings.Cut(of.State.Servers[0].Name, "@"); prefix != o.prefix {
				continue
			}
			if other, known := out[l.Algorithm()]; known && other != l {
				differ[l.Algorithm()] = true
			}
			out[l.Algorithm()] = l
		}
	}
	for algorithm := range differ {
		delete(out, algorithm)
	}
	return out, nil
}

// Empty reports that nothing is stored.
func (k *Key) Empty() bool {
	return len(k.Limits) == 0 && k.Permits == nil && k.SampledRate == 0 && !k.Learnt
}

// Inspect reads what is stored for a key.
func (o *Operator) Inspect(ctx context.Context, key string, q Question) (*Key, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	states, err := o.states(ctx, key)
	if err != nil {
		return nil, err
	}
	now, err := o.now(ctx)
	if err != nil {
		return nil, err
	}
	k := &Key{Prefix: o.prefix, Key: key, At: now.UTC(), Limits: []State{}}
	published := map[string]limiter.Limit{}
	if q.Limit == (limiter.Limit{}) {
		if published, err = o.published(ctx); err != nil {
			return nil, err
		}
	}
	for _, s := range states {
		q := q
		if l, ok := published[s.Algorithm]; ok && s.Part == nil {
			q = Question{Limit: l, published: true}
		}
		if err := o.read(ctx, &s, now.UnixMicro(), q); err != nil {
			return nil, err
		}
		if s.Redis != "" {
			k.Limits = append(k.Limits, s)
		}
	}
	return k, o.beside(ctx, k, lua.EncodeID(key), now.UnixMicro())
}

func checkKey(key string) error {
	if key == "" {
		return badRequest{errors.New("key is empty")}
	}
	return nil
}

// states finds the keys that exist: of each algorithm, for the whole key and all parts that it
// can have.
func (o *Operator) states(ctx context.Context, key string) ([]State, error) {
	var all []State
	for part := -1; part < lua.MaxParts; part++ {
		for _, kind := range algo.Kinds {
			all = append(all, o.state(kind, key, part))
		}
	}
	found := make([]*redis.IntCmd, len(all))
	err := o.pipelined(ctx, func(p redis.Pipeliner) {
		for i := range all {
			found[i] = p.Exists(ctx, all[i].Redis)
		}
	})
	if err != nil {
		return nil, err
	}
	var out []State
	for i := range all {
		if found[i].Val() > 0 {
			out = append(out, all[i])
		}
	}
	return out, nil
}

// state names the state of an algorithm: of the whole key, or of a part from 0 on.
func (o *Operator) state(kind algo.Kind, key string, part int) State {
	s := State{Algorithm: kind.String(), kind: kind}
	if part >= 0 {
		s.Part, key = &part, lua.PartKey(key, part)
	}
	s.keys = o.names.KeysOf(kind, lua.EncodeID(key))
	s.Redis = s.keys.State()
	return s
}

// pipelined sends commands together, and returns the first error that is no empty answer.
func (o *Operator) pipelined(ctx context.Context, add func(redis.Pipeliner)) error {
	cmds, err := o.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		add(p)
		return nil
	})
	for _, cmd := range cmds {
		if e := cmd.Err(); e != nil && !errors.Is(e, redis.Nil) {
			return e
		}
	}
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// read fills a state in. It loses its name if the key is gone by now.
func (o *Operator) read(ctx context.Context, s *State, now int64, q Question) error {
	var text *redis.StringCmd
	var log *redis.ZSliceCmd
	var ttl *redis.DurationCmd
	err := o.pipelined(ctx, func(p redis.Pipeliner) {
		if s.kind == algo.SlidingWindowLog {
			log = p.ZRangeWithScores(ctx, s.Redis, 0, -1)
		} else {
			text = p.Get(ctx, s.Redis)
		}
		ttl = p.PTTL(ctx, s.Redis)
	})
	if err != nil && redis.HasErrorPrefix(err, "WRONGTYPE") {
		s.Broken = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	var state algo.State
	if log != nil {
		if len(log.Val()) == 0 {
			s.Redis = ""
			return nil
		}
		state, err = lua.ReadLog(log.Val())
		s.params = algo.Params{Kind: s.kind, Num: 1, Den: windowOfLog(&state, now, ttl.Val())}
	} else {
		if errors.Is(text.Err(), redis.Nil) {
			s.Redis = ""
			return nil
		}
		state, s.params, err = lua.ReadState(s.kind, text.Val())
	}
	s.Expires = Duration(max(0, ttl.Val()))
	if err != nil {
		s.Broken = err.Error()
		return nil
	}
	s.describe(&state, now, q)
	return nil
}

// windowOfLog is at least the window of a log, in µs: the key lives for it after the newest unit, and
// one or two seconds more.
func windowOfLog(s *algo.State, now int64, ttl time.Duration) int64 {
	newest := now
	if len(s.Log) > 0 {
		newest = s.Log[len(s.Log)-1].T
	}
	return max(1, min(algo.MaxPeriod, now-newest+ttl.Microseconds()))
}

// describe says what a state means now.
func (s *State) describe(state *algo.State, now int64, q Question) {
	s.BlockedFor = micros(state.Blocked(now))
	if state.Birth > 0 {
		at := time.UnixMicro(state.Birth).UTC()
		s.Since = &at
	}
	p, known := s.params, s.params.Cap > 0
	if s.kind != algo.SlidingWindowLog {
		s.Rate = rateOf(p.Num, p.Den)
		if s.kind.Windowed() && p.Den > 0 {
			s.Rate = fmt.Sprintf("window %v", time.Duration(p.Den)*time.Microsecond)
		}
	}
	// The state of a window that follows a calendar says in which calendar unit, not in which time zone.
	unit := calendar.Unit(1 + slices.Index(algo.Shortest[:], p.Den))
	follows := s.kind == algo.FixedWindow && unit.Valid()
	if follows {
		s.Rate = fmt.Sprintf("window of a calendar %v, or %v", unit, time.Duration(p.Den)*time.Microsecond)
	}
	asked, err := paramsOf(q.Limit)
	// A state with another rate than what is published was charged by a limit of the call or of the key.
	other := q.published && p.Den > 0 && s.kind != algo.SlidingWindowLog && (asked.Num != p.Num || asked.Den != p.Den)
	if err == nil && asked.Kind == s.kind && !other {
		follows = followsCalendar(q.Limit)
		if s.Part == nil {
			p, known, s.Limit = asked, true, q.Limit.String()
		} else if q.Shards > *s.Part {
			if part, err := asked.Part(int64(*s.Part), int64(q.Shards)); err == nil {
				p, known, s.Limit = part, true, fmt.Sprintf("a part of %v", q.Limit)
			}
		}
	}
	if known && s.Limit == "" {
		s.Limit = fmt.Sprintf("%v %s burst %d", s.kind, s.Rate, p.Cap)
	}
	if p.Den == 0 { // blocked and never used
		s.ResetAfter = s.BlockedFor
		return
	}
	if !known { // any that holds all that can be
		p.Cap = max(1, algo.MaxExact/2/p.Den-1)
		if s.kind.Windowed() {
			p.Cap = algo.MaxExact / p.Den
		}
	}
	read := p.Read(state, now, 1)
	if ahead := state.At - now; follows && ahead <= 0 {
		read.Level = 0
	} else if follows {
		read.Level, read.Ahead = state.V, ahead // the time of a state is the end of its window
	}
	d := p.Decision(read, 0, true)
	s.Used = p.Cap - d.Remaining
	s.ResetAfter = micros(max(d.ResetAfter, read.Blocked))
	if s.kind == algo.SlidingWindowLog && !known {
		s.ResetAfter = max(s.BlockedFor, s.Expires-Duration(time.Second)) // as long as the key lives, nearly
	}
	if !known {
		return
	}
	left := d.Remaining
	if read.Blocked > 0 {
		left = 0
	}
	s.Remaining = &left
	var retry int64
	if left < 1 {
		retry = p.Decision(read, 1, false).RetryAfter
	}
	wait := micros(retry)
	s.RetryAfter = &wait
}

// beside reads what is no limit.
func (o *Operator) beside(ctx context.Context, k *Key, id string, now int64) error {
	var permits *redis.ZSliceCmd
	var ttl *redis.DurationCmd
	var demand *redis.StringCmd
	var learnt *redis.IntCmd
	err := o.pipelined(ctx, func(p redis.Pipeliner) {
		permits = p.ZRangeWithScores(ctx, o.names.Permits(id), 0, -1)
		ttl = p.PTTL(ctx, o.names.Permits(id))
		demand = p.HGet(ctx, o.names.SampledSums(), id)
		learnt = p.Exists(ctx, o.names.Learnt(id))
	})
	if err != nil {
		return err
	}
	if len(permits.Val()) > 0 {
		held := lua.ReadPermits(permits.Val(), now)
		k.Permits = &Permits{o.names.Permits(id), held.Held, held.Waiting, micros(max(0, held.LastEnd-now)), Duration(max(0, ttl.Val()))}
	}
	k.SampledRate, _ = demand.Int64()
	k.Learnt = learnt.Val() > 0
	slices.SortStableFunc(k.Limits, func(a, b State) int { return cmp.Compare(a.kind, b.kind) })
	return nil
}
