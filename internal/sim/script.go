package sim

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// value is what a server keeps under a key.
type value struct {
	state   algo.State
	kind    algo.Kind // of state; 0 is a set
	set     map[string]int64
	expires int64 // by the server's clock
}

func (v *value) clone() *value {
	c := *v
	c.state.Log = slices.Clone(v.state.Log)
	c.set = maps.Clone(v.set)
	return &c
}

// run is one execution of a script.
type run struct {
	get     func(key string) *value // what the server keeps
	now     int64
	changes map[string]*value
	charges []charge
}

type chargeKind uint8

const (
	decisions chargeKind = iota
	debts
	returns
)

// charge is units that a script takes (or, below 0, gives back).
type charge struct {
	key   string
	kind  chargeKind
	units int64
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
		return r.beat(keys[0], argv), true
	case kindOf(kind) == 0:
		return nil, false
	case what == "":
		return r.decide(kindOf(kind), keys, argv), true
	case what == "back":
		return r.back(kindOf(kind), keys, argv), true
	case what == "block":
		return r.block(kindOf(kind), keys[0], argv), true
	}
	return nil, false
}

func kindOf(short string) algo.Kind {
	for _, k := range algo.Kinds {
		if k.Short() == short {
			return k
		}
	}
	return 0
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func numbers(args []string) []int64 {
	out := make([]int64, len(args))
	for i, a := range args {
		out[i] = number(a)
	}
	return out
}

// load is a copy of what a key holds, as this script left it.
func (r *run) load(key string, kind algo.Kind) *value {
	v := r.changes[key]
	if v == nil {
		v = r.get(key)
	}
	if v == nil {
		return &value{kind: kind}
	}
	return v.clone()
}

// save keeps v if it differs from what was there, for reset µs; without a reset for as
// long as before.
func (r *run) save(key string, before, v *value, reset int64) {
	if equal(&before.state, &v.state) {
		return
	}
	if reset >= 0 {
		v.expires = r.now + max(1_000_000, (max(reset, v.state.Until-r.now)+999)/1000*1000)
	}
	r.changes[key] = v
}

func equal(a, b *algo.State) bool {
	return a.At == b.At && a.V == b.V && a.W == b.W && a.Birth == b.Birth && a.Until == b.Until && a.Length == b.Length && slices.Equal(a.Log, b.Log)
}

func params(kind algo.Kind, f []int64) algo.Params {
	return algo.Params{Kind: kind, Cap: f[0], Num: f[1], Den: f[2]}
}

// decide is decide.lua.
func (r *run) decide(kind algo.Kind, keys, argv []string) []int64 {
	reply := []int64{r.now}
	f := numbers(argv[2:])
	span, first := len(f)/len(keys), 5
	if kind == algo.LeakyBucketShaping {
		first = 6
	}
	for i, key := range keys {
		it := f[i*span : (i+1)*span]
		n, count, p := it[0], max(1, it[1]), params(kind, it[2:5])
		if kind == algo.LeakyBucketShaping {
			p.MaxDelay = it[5]
		}
		if span > first {
			p.Keep = it[first]
		}
		v := r.load(key, kind)
		before := v.clone()
		var d algo.Decision
		var admitted int64
		switch {
		case n < 0:
			room := algo.Step(p, &v.state, r.now, 0).Remaining
			d = algo.Debit(p, &v.state, r.now, -n)
			admitted = one(d.Allowed)
			r.charges = append(r.charges, charge{key, debts, min(-n, room)})
		case n > 0 && count > 1 && v.state.Blocked(r.now) == 0:
			fit := min(count, max(0, (algo.Step(p, &v.state, r.now, 0).Remaining-p.Keep)/n))
			if fit == 0 {
				d = algo.Decide(p, &v.state, r.now, n)
				break
			}
			whole := p
			whole.Keep = 0
			d = algo.Step(whole, &v.state, r.now, n*fit)
			if d.Allowed {
				admitted = fit
			}
			if fit < count {
				after := v.clone()
				d.RetryAfter = algo.Decide(p, &after.state, r.now, n).RetryAfter
			}
		default:
			d = algo.Decide(p, &v.state, r.now, n)
			admitted = one(d.Allowed)
		}
		if admitted > 0 && n > 0 {
			r.charges = append(r.charges, charge{key, decisions, admitted * n})
		}
		r.save(key, before, v, d.ResetAfter)
		reply = append(reply, admitted, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay)
	}
	return reply
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// all is decide_all.lua.
func (r *run) all(keys, argv []string) []int64 {
	asks := make([]algo.Ask, len(keys))
	values, before := make([]*value, len(keys)), make([]*value, len(keys))
	for i, key := range keys {
		f := argv[2+7*i:]
		it := numbers(f[1:7])
		kind := kindOf(f[0])
		p := params(kind, it[1:4])
		p.MaxDelay, p.Keep = it[4], it[5]
		values[i] = r.load(key, kind)
		before[i] = values[i].clone()
		asks[i] = algo.Ask{Params: p, State: &values[i].state, N: it[0]}
	}
	out, ok := algo.StepAll(asks, r.now)
	reply := []int64{r.now}
	for i, d := range out {
		if ok {
			r.save(keys[i], before[i], values[i], d.ResetAfter)
			r.charges = append(r.charges, charge{keys[i], decisions, asks[i].N})
		}
		reply = append(reply, one(d.Allowed), d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay)
	}
	return reply
}

// back is give_back.lua.
func (r *run) back(kind algo.Kind, keys, argv []string) []int64 {
	var reply []int64
	for i, key := range keys {
		f := argv[2+8*i:]
		it := numbers(f[:6])
		n, at, of, p := it[0], it[1], it[2], params(kind, it[3:6])
		v := r.load(key, kind)
		before := v.clone()
		var given int64
		if at == 0 {
			given = algo.Refund(p, &v.state, r.now, n)
		} else {
			given = algo.GiveBack(p, &v.state, r.now, at, of, n)
		}
		r.save(key, before, v, -1)
		r.charges = append(r.charges, charge{key, returns, -given})
		reply = append(reply, given)
	}
	return reply
}

// block is block.lua.
func (r *run) block(kind algo.Kind, key string, argv []string) []int64 {
	f := numbers(argv[1:])
	v := r.load(key, kind)
	before := v.clone()
	left := algo.Block(&v.state, r.now, f[0])
	reset := algo.Step(params(kind, f[1:4]), &v.state, r.now, 0).ResetAfter
	r.save(key, before, v, reset)
	return []int64{left}
}

// beat is beat.lua.
func (r *run) beat(key string, argv []string) []int64 {
	id, life := argv[1], number(argv[2])
	v := r.load(key, 0)
	if v.set == nil {
		v.set = map[string]int64{}
	}
	if life == 0 {
		delete(v.set, id)
	} else {
		v.set[id] = r.now
		for other, heard := range maps.Clone(v.set) {
			switch {
			case heard < r.now-life:
				delete(v.set, other)
			case heard > r.now:
				v.set[other] = r.now
			}
		}
		v.expires = r.now + max(1_000_000, life)
	}
	r.changes[key] = v
	return []int64{int64(len(v.set))}
}
