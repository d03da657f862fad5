package sim

import (
	"cmp"
	"maps"
	"math"
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
	learnt  []int64 // what is learnt of quotas
	expires int64   // by the server's clock
}

func (v *value) clone() *value {
	c := *v
	c.state.Log = slices.Clone(v.state.Log)
	c.set = maps.Clone(v.set)
	return &c
}

// change is what a script writes to a key.
type change struct {
	key string
	to  *value
}

// run is one execution of a script.
type run struct {
	get     func(key string) *value // what the server keeps
	now     int64
	changes []change
	charges []charge
	denials []charge // units that were denied, of keys without a block
	granted []string // keys of semaphores, once for each new permit
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
	p     algo.Params // by which
	at    int64       // when they were used
	any   bool        // they may be those of any time
	n, of int64       // of what is given back: how many of how many units
}

func kindOf(short string) algo.Kind {
	for _, k := range algo.Kinds {
		if k.Short() == short {
			return k
		}
	}
	return 0
}

// kindIn is the algorithm of a key. Several algorithms have one script.
func kindIn(key string) algo.Kind {
	_, rest, _ := strings.Cut(key, ":v2:")
	short, _, _ := strings.Cut(rest, ":")
	return kindOf(short)
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// changed is what this script has written to a key, nil without.
func (r *run) changed(key string) *value {
	for _, c := range r.changes {
		if c.key == key {
			return c.to
		}
	}
	return nil
}

// change writes to a key.
func (r *run) change(key string, to *value) {
	for i, c := range r.changes {
		if c.key == key {
			r.changes[i].to = to
			return
		}
	}
	r.changes = append(r.changes, change{key, to})
}

// load is what a key holds, as this script left it, and a copy to be changed.
func (r *run) load(key string, kind algo.Kind) (before, v *value) {
	before = r.changed(key)
	if before == nil {
		before = r.get(key)
	}
	if before == nil {
		return &value{kind: kind}, &value{kind: kind}
	}
	return before, before.clone()
}

// save keeps v if it differs from what was there, for reset µs; without a reset for as
// long as before.
func (r *run) save(key string, before, v *value, reset int64) {
	if equal(&before.state, &v.state) {
		return
	}
	if reset >= 0 {
		v.expires = r.now + max(reset, v.state.Until-r.now)/1000*1000 + 2_000_000
	}
	r.change(key, v)
}

func equal(a, b *algo.State) bool {
	return a.At == b.At && a.V == b.V && a.W == b.W && a.Num == b.Num && a.Cap == b.Cap && a.Birth == b.Birth && a.Until == b.Until && a.Length == b.Length && slices.Equal(a.Log, b.Log)
}

// asked reads the arguments of a script for a limit and a request: see decide.lua. MaxDelay
// and Keep are such that a request is admitted up to the level asked for.
func asked(kind algo.Kind, f []string) (p algo.Params, n int64) {
	n, most := number(f[0]), number(f[1])
	p = limitOf(kind, f[2], f[3])
	scale := p.Most() / p.Cap
	if n > 0 {
		n /= scale
	}
	switch room := p.Most() - most - n*scale; {
	case n <= 0 || room == 0:
	case kind == algo.LeakyBucketShaping:
		p.MaxDelay = max(1, most/p.Num)
	default:
		p.Keep = room / scale
	}
	return p, n
}

// limitOf is a limit as scripts know it.
func limitOf(kind algo.Kind, full, rate string) algo.Params {
	// ":num:den:", and what the burst of a token bucket is, and borders
	num, rest, _ := strings.Cut(rate[1:], ":")
	den, rest, _ := strings.Cut(rest, ":")
	p := algo.Params{Kind: kind, Cap: number(full), Num: number(num), Den: number(den)}
	if !kind.Windowed() {
		p.Cap /= p.Den
	}
	if _, at, _ := strings.Cut(rest, ":"); at != "" {
		p.Calendar = listed(numbers(strings.Split(at, ":")), p.Den)
	}
	return p
}

// read is what is replied on the item number nr: the integers of decide.lua, and those at
// the end of the reply.
func (r *run) read(p algo.Params, key string, s *algo.State, n, admitted, count, nr int64) (v, more []int64) {
	is := p.Read(s, r.now, n)
	v = []int64{is.Level}
	if admitted == 0 && n >= 0 {
		v[0] = -1 - is.Level
		if is.Blocked > 0 {
			more = append(more, nr, 1, is.Blocked)
		} else if n > 0 {
			r.denials = append(r.denials, charge{key: key, units: n + p.Keep, p: p})
		}
	} else if admitted < count && n > 0 {
		more = append(more, nr, 2, admitted)
	}
	switch p.Kind {
	case algo.SlidingWindowCounter:
		v = append(v, is.Previous)
	case algo.SlidingWindowLog:
		if admitted == count { // none was denied
			is.Retry = 0
		}
		v = append(v, is.Reset, is.Retry)
	}
	if _, end := p.Bounds(r.now); is.Ahead > 0 && is.Ahead != end-r.now {
		more = append(more, nr, 4, is.Ahead)
	}
	return v, more
}

// decide is decide.lua.
func (r *run) decide(kind algo.Kind, keys, argv []string) []int64 {
	reply := append(make([]int64, 0, 1+3*len(keys)), r.now)
	var marks []int64
	all := int64(len(keys))
	own := all > 1 && int64(len(argv)) > 8+all
	counts := int64(7)
	if own {
		counts = 5*all + 2
	}
	for i, key := range keys {
		f := argv[2:]
		if own {
			f = argv[2+5*i:]
		}
		count := int64(1)
		if int64(len(argv)) > counts {
			count = number(argv[counts+int64(i)])
		}
		p, n := asked(kind, f)
		if elsewhen(&p, r.now) {
			reply, marks = append(reply, -1), append(marks, int64(i+1), 5, 1)
			continue
		}
		before, v := r.load(key, kind)
		var d algo.Decision
		var admitted int64
		switch {
		case n < 0:
			room, had := algo.Step(p, &v.state, r.now, 0).Remaining, p.Read(&v.state, r.now, 0)
			d = algo.Debit(p, &v.state, r.now, -n, number(f[1]))
			if kind.Windowed() {
				has := p.Read(&v.state, r.now, 0)
				room = has.Level + has.Previous - had.Level - had.Previous
			}
			r.charges = append(r.charges, charge{key: key, kind: debts, units: min(-n, room), p: p, at: r.now - number(f[1])})
		default:
			for range count {
				if d = algo.Decide(p, &v.state, r.now, n); !d.Allowed {
					break
				}
				admitted++
			}
		}
		if admitted > 0 && n > 0 {
			r.charges = append(r.charges, charge{key: key, kind: decisions, units: admitted * n, p: p, at: r.now})
		}
		r.save(key, before, v, d.ResetAfter)
		item, more := r.read(p, key, &v.state, n, admitted, count, int64(i+1))
		reply, marks = append(reply, item...), append(marks, more...)
	}
	return append(reply, marks...)
}

// learnt is learnt.lua.
func (r *run) learnt(key string, argv []string) []int64 {
	const cut, until, fields = 4, 6, 7
	if life := number(argv[1]); life > 0 {
		v := &value{learnt: numbers(argv[2:]), expires: r.now + 1000*life}
		for i := range v.learnt {
			switch i % fields {
			case cut:
				v.learnt[i] = r.now - v.learnt[i]
			case until:
				v.learnt[i] += r.now
			}
		}
		r.change(key, v)
	}
	v := cmp.Or(r.changed(key), r.get(key))
	if v == nil {
		return nil
	}
	out := slices.Clone(v.learnt)
	for i := range out {
		switch i % fields {
		case cut:
			out[i] = max(0, r.now-out[i])
		case until:
			out[i] = max(0, out[i]-r.now)
		}
	}
	return out
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// all is all.lua.
func (r *run) all(keys, argv []string) []int64 {
	reply, marks := []int64{r.now}, []int64(nil)
	of := int(number(argv[2]))
	own := len(argv) > 3+6*of
	for first := 0; first < len(keys); first += of {
		asks, unknown := make([]algo.Ask, of), false
		values, before := make([]*value, of), make([]*value, of)
		for i, key := range keys[first : first+of] {
			f := argv[4+6*i:]
			if own {
				f = argv[4+6*(first+i):]
			}
			p, n := asked(kindIn(key), f)
			before[i], values[i] = r.load(key, p.Kind)
			asks[i] = algo.Ask{Params: p, State: &values[i].state, N: n}
			unknown = unknown || elsewhen(&p, r.now)
		}
		out, ok := stepAll(asks, r.now, unknown)
		reply = append(reply, one(ok))
		for i, d := range out {
			if key := keys[first+i]; ok {
				r.save(key, before[i], values[i], d.ResetAfter)
				r.charges = append(r.charges, charge{key: key, kind: decisions, units: asks[i].N, p: asks[i].Params, at: r.now})
			}
			if elsewhen(&asks[i].Params, r.now) {
				reply, marks = append(reply, -1), append(marks, int64(first+i+1), 5, 1)
				continue
			}
			item, more := r.read(asks[i].Params, keys[first+i], asks[i].State, asks[i].N, one(d.Allowed), 1, int64(first+i+1))
			reply, marks = append(reply, item...), append(marks, more...)
		}
	}
	return append(reply, marks...)
}

// stepAll is algo.StepAll; where the windows of a calendar are unknown, nothing is charged.
func stepAll(asks []algo.Ask, now int64, unknown bool) (out []algo.Decision, ok bool) {
	if !unknown {
		return algo.StepAll(asks, now)
	}
	for _, a := range asks {
		dry := *a.State
		dry.Log = slices.Clone(dry.Log)
		each, _ := algo.StepAll([]algo.Ask{{Params: a.Params, State: &dry, N: a.N}}, now)
		out = append(out, each...)
	}
	return out, false
}

// back is give_back.lua.
func (r *run) back(kind algo.Kind, keys, argv []string) []int64 {
	var reply []int64
	for i, key := range keys {
		f := argv[2+5*i:]
		n, of, at, p := number(f[0]), number(f[1]), number(f[2]), limitOf(kind, f[3], f[4])
		before, v := r.load(key, kind)
		var given int64
		if at == 0 {
			given = algo.Refund(p, &v.state, r.now, n)
		} else {
			given = algo.GiveBack(p, &v.state, r.now, at, of, n)
		}
		r.save(key, before, v, -1)
		r.charges = append(r.charges, charge{key: key, kind: returns, units: -given, p: p, at: cmp.Or(at, r.now), any: at == 0, n: n, of: max(n, of)})
		reply = append(reply, given)
	}
	return reply
}

// block is block.lua.
func (r *run) block(kind algo.Kind, key string, argv []string) []int64 {
	before, v := r.load(key, kind)
	left := algo.Block(&v.state, r.now, number(argv[1]))
	p := limitOf(kind, argv[2], argv[3])
	reset := algo.Step(p, &v.state, r.now, 0).ResetAfter
	if elsewhen(&p, r.now) {
		reset = min(v.state.V, 1) * max(0, v.state.At-r.now)
	}
	r.save(key, before, v, max(reset, before.expires-r.now-2_000_000))
	return []int64{left}
}

// beat is beat.lua.
func (r *run) beat(keys, argv []string) []int64 {
	id, life, since := argv[1], number(argv[2]), number(argv[4])
	v := r.loadSet(keys[0])
	r.change(keys[0], v)
	if life == 0 {
		delete(v.set, id)
		return []int64{int64(len(v.set)), 0, 0, 0}
	}
	if since == 0 || v.set[id] < r.now {
		v.set[id] = r.now + number(argv[3])
	}
	longest := int64(0)
	for other, heard := range maps.Clone(v.set) {
		switch {
		case heard < r.now-life:
			delete(v.set, other)
		case heard > r.now+10*life:
			v.set[other] = r.now
		}
		longest = max(longest, v.set[other])
	}
	v.expires = r.now + max(1_000_000, (longest-r.now+life+999)/1000*1000)
	alive := int64(len(v.set))
	if len(keys) == 1 {
		return []int64{alive, 0, 0, 0}
	}
	back, from := r.loadSet(keys[1]), int64(math.MinInt64)
	if since > 0 {
		from = r.now - since
	}
	heard, listed := back.set[id]
	waits := since > 0 && heard < from
	patience := (number(argv[5]) + 999) / 1000 * 1000
	makes := waits && patience > 0 || since < 0
	switch {
	case (waits || since == 0) && (makes || len(back.set) > 0):
		back.set[id] = r.now
	case since < 0 && !listed:
		back.set[id] = 0
	}
	if makes || patience > 0 && back.expires-r.now > patience {
		back.expires = r.now + patience
	}
	if len(back.set) > 0 {
		r.change(keys[1], back)
	}
	fresh, oldest, newest := int64(0), r.now, int64(0)
	for _, heard := range back.set {
		if newest = max(newest, heard); heard >= from {
			fresh, oldest = fresh+1, min(oldest, heard)
		}
	}
	if fresh == 0 {
		newest = r.now
	}
	return []int64{alive, fresh, r.now - oldest, max(0, r.now-newest)}
}

// loadSet is load for a sorted set.
func (r *run) loadSet(key string) *value {
	_, v := r.load(key, 0)
	if v.set == nil {
		v.set = map[string]int64{}
	}
	return v
}

// saveSet keeps a sorted set that has changed.
func (r *run) saveSet(key string, before map[string]int64, v *value) {
	if !maps.Equal(before, v.set) {
		r.change(key, v)
	}
}

func numbers(args []string) []int64 {
	out := make([]int64, len(args))
	for i, a := range args {
		out[i] = number(a)
	}
	return out
}
