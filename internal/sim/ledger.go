package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/limiter"
)

// Violation is a promise that did not hold.
type Violation struct {
	// Promise is its short name, as in docs/guarantees.md.
	Promise string
	At      time.Duration // since the world began
	What    string
}

func (v Violation) String() string { return fmt.Sprintf("%s at %v: %s", v.Promise, v.At, v.What) }

// event is a decision as its caller saw it.
type event struct {
	at      time.Duration // when it was made
	process int
	units   int64
	allowed bool
	local   bool
	settled bool    // units that were not used
	claim   float64 // of a local decision: the part of the limit that the process used
}

// account is what the ledger knows of a key of one limit.
type account struct {
	rule   *rule
	events []event
	// asked and admitted are units, by who decided. unknown is what was asked for and may
	// have been charged although it was decided locally: a reply was lost.
	asked, admittedRemote, admittedLocal, unknown int64
	// leftOver is what may have been charged and is used by no caller: it was denied locally, or its
	// caller had left.
	leftOver int64
	// unused is what reservations gave back.
	charged, owed, returned, unused int64
	lost                            []loss
	blocks                          map[int]block // by process
	resets                          int           // that may still be executed
	wasReset                        time.Duration // when the last one ended
	fleet                           claims
}

// loss is a part of a key that a server has lost.
type loss struct {
	at   time.Duration
	part float64
}

// ledger sees every decision, in the processes and in the servers.
type ledger struct {
	plan      *Plan
	began     time.Time
	rules     map[string]*rule // by the key in Redis
	stretches [][2]time.Duration
	tracing   bool

	mu      sync.Mutex
	stepped []time.Duration // when the clock of a server was
	drifts  []Fault
	// accounts by the key in Redis.
	accounts   map[string]*account
	violations []Violation
	decisions  int
	checks     int
	hash       uint64 // of everything that happened, whatever the order within an instant
	trace      []string
	line       []byte                   // the last one, whose memory the next one uses
	waits      map[[3]int]*waiting      // by process, limiter and server
	asked      map[[3]int]time.Duration // the same, the fault after which a decision was asked for last
	askedLast  map[[2]int]time.Duration // by limiter and server, when the last process did so that was late after a fault
	refused    map[[3]int]*waiting      // the same, decisions that a breaker kept from Redis
	nonces     map[string]bool          // of the commands that were executed
	permits    map[string]*inFlight     // by the key in Redis
	emptied    map[string][]time.Duration
	lines      map[line]map[*waiter]struct{}
	levels     levels
	quiet      [][2]time.Duration
	samples    map[sampledIn]samples
	changed    time.Duration  // when a breaker did last
	redirects  map[string]int // answers of servers that do not have the keys, by their first word
}

// waiting counts the decisions that asked Redis without being charged, since it last
// charged one.
type waiting struct {
	n     int
	since time.Duration
}

func newLedger(p *Plan, rules map[string]*rule, tracing bool) *ledger {
	return &ledger{plan: p, began: time.Now(), rules: rules, tracing: tracing, accounts: map[string]*account{}, waits: map[[3]int]*waiting{}, refused: map[[3]int]*waiting{}, asked: map[[3]int]time.Duration{}, askedLast: map[[2]int]time.Duration{}, nonces: map[string]bool{}, permits: map[string]*inFlight{}, lines: map[line]map[*waiter]struct{}{}, emptied: map[string][]time.Duration{}, samples: map[sampledIn]samples{}, quiet: p.quiet(), levels: levels{of: map[string]*level{}}, redirects: map[string]int{}}
}

func (l *ledger) now() time.Duration { return time.Since(l.began) }

// clockStepped notes that the clock of a server is about to step.
func (l *ledger) clockStepped() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stepped = append(l.stepped, l.now())
	l.levels.stepped()
}

// clockDrifts notes that the clock of a server begins to gain or to lose.
func (l *ledger) clockDrifts(f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drifts = append(l.drifts, f)
	l.levels.stepped()
}

// gained is how much the clocks of servers gain at most from one time to another. mu is held.
func (l *ledger) gained(from, to time.Duration) (all time.Duration) {
	for _, f := range l.drifts {
		if long := min(to, f.At+f.For) - max(from, f.At); long > 0 && f.By > 0 {
			all += time.Duration(long.Seconds() * float64(f.By))
		}
	}
	return all
}

// violated notes a violation. mu is held.
func (l *ledger) violated(promise, format string, args ...any) {
	if len(l.violations) < 20 {
		l.violations = append(l.violations, Violation{promise, l.now(), fmt.Sprintf(format, args...)})
	}
}

func (l *ledger) check(ok bool, promise, format string, args ...any) bool {
	l.checks++
	if !ok {
		l.violated(promise, format, args...)
	}
	return ok
}

// note adds to the hash, and to the trace if there is one.
func (l *ledger) note(format string, args ...any) {
	l.line = fmt.Appendf(l.line[:0], "%12.6f ", l.now().Seconds())
	l.line = fmt.Appendf(l.line, format, args...)
	h := fnv.New64a()
	_, _ = h.Write(l.line)
	l.hash += h.Sum64()
	if l.tracing {
		l.trace = append(l.trace, string(l.line))
	}
}

func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note("fault: "+format, args...)
}

// returning is for how long processes may decide without Redis when a breaker has closed: they wait for the
// others, as guarantees.md says.
const returning = 6*time.Second + time.Second

// breakerChanged notes that a process lost Redis, which it does near a fault only, or found it again.
func (l *ledger) breakerChanged(process, limiter int, ch breaker.Change) {
	l.fault("process %d, limiter %d: breaker %v to %v (%v)", process, limiter, ch.From, ch.To, ch.Cause)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = l.now()
	gone := slices.ContainsFunc(l.plan.Leaves, func(v Leave) bool { return v.Process == process && v.At <= l.changed })
	if over := l.plan.calmSince(l.changed, -1); ch.From == breaker.Closed && !gone {
		l.check(over > 0 && l.changed < over+30*time.Second, "return", "process %d, limiter %d: no fault since %v, and a breaker opens (%v)", process, limiter, over, ch.Cause)
	}
}

// of is the account of a key. mu is held.
func (l *ledger) of(key string) *account {
	r := l.rules[key]
	a := l.accounts[r.account]
	if a == nil {
		a = &account{rule: r}
		l.accounts[r.account] = a
	}
	return a
}

// same checks that a real server replies as the step functions do.
func (l *ledger) same(keys, argv []string, want, got []int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check(err == nil && slices.Equal(want, got), "scripts", "%q with %q: the step functions reply %v, Redis %v (%v)", keys, argv, want, got, err)
}

// redirected notes that a server does not have the keys that it was asked for.
func (l *ledger) redirected(answer []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	word, _, _ := strings.Cut(string(answer[1:]), " ")
	l.redirects[word]++
}

// lost notes that a server has lost what it kept of a key.
func (l *ledger) lost(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rules[key] == nil {
		l.emptied[key] = append(l.emptied[key], l.now())
		return
	}
	l.levels.lost(key)
	a := l.of(key)
	a.lost = append(a.lost, loss{l.now(), 1 / a.rule.parts})
	a.fleet.extra += a.rule.grants(l.now()).bursts
}

// restored notes that a server has an older state of a key again, which may be one of those it has lost since.
func (l *ledger) restored(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.levels.restored(key)
}

// executed checks that no command is executed twice that charges.
func (l *ledger) executed(nonce string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.nonces)
	l.nonces[strings.Clone(nonce)] = true // it is a part of the request
	l.check(len(l.nonces) > before, "P1", "the command %s was executed twice", nonce)
}

// charged notes units that a server has charged, by its clock.
func (l *ledger) charged(c charge, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rules[c.key] == nil {
		return
	}
	wrong := l.levels.charge(c, l.rules[c.key], now)
	l.check(wrong == "", "P4", "%s: %s", c.key, wrong)
	if c.units == 0 {
		return
	}
	a := l.of(c.key)
	switch c.kind {
	case decisions:
		a.charged += c.units
	case debts:
		a.owed += c.units
	case returns:
		a.returned -= c.units
	}
	l.note("%s charges %d (%d)", c.key, c.units, c.kind)
}

// lacked checks that a server has denied units because there is no room for them.
func (l *ledger) lacked(d charge, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.rules[d.key]; r != nil {
		wrong := l.levels.deny(d, r, now)
		l.check(wrong == "", "P4", "%s: %s", d.key, wrong)
	}
}

// timely checks what holds for every call but waits.
func (l *ledger) timely(process int, key string, err error, took time.Duration, left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered(process, key, err, took, left)
}

// answered is timely with mu held.
func (l *ledger) answered(process int, key string, err error, took time.Duration, left bool) {
	l.check(took <= budget, "P2", "process %d, key %s: a decision took %v, its budget is %v", process, key, took, budget)
	if !left {
		l.check(err == nil, "P3", "process %d, key %s: %v", process, key, err)
	}
}

// waited checks how a wait ended.
func (l *ledger) waited(process int, key string, err error, ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end, _ := ctx.Deadline()
	var early *limiter.WaitError
	l.check(err == nil || errors.As(err, &early) || ctx.Err() != nil, "P3", "process %d, key %s: a wait ended with %v", process, key, err)
	l.check(!time.Now().After(end), "P9", "process %d, key %s: a wait ended %v late", process, key, time.Since(end))
}

// unused notes that units of a reservation are given back.
func (l *ledger) unused(process int, key string, units int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if units > 0 {
		a := l.of(key)
		a.unused += units
		a.events = append(a.events, event{at: l.now(), process: process, units: -units, allowed: true, settled: true})
	}
}

// decided notes a decision on a key of a server, and checks what holds for each.
func (l *ledger) decided(process, lim, server int, key string, d limiter.DecisionInfo, left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rules[key] == nil {
		return
	}
	l.decisions++
	units, res, err, took := int64(d.Cost), d.Result, d.Err, d.Took
	l.answered(process, key, err, took, left)
	if !left {
		l.patience([3]int{process, lim, server}, units, res, took)
	}
	a := l.of(key)
	a.asked += units
	if d.NotCharged && res.Allowed { // it was not, or it is given back
		a.leftOver += units
		a.unknown += units
		res.Allowed = false
	}
	local := res.Source == limiter.SourceLocal
	asked := took > 0 || left // Redis, perhaps: who had no time left did not wait for it
	switch {
	case err != nil:
		a.unknown += units // it may have been charged
		a.leftOver += units
	case res.Allowed && local:
		a.admittedLocal += units
		if asked {
			a.unknown += units
		}
	case res.Allowed:
		a.admittedRemote += units
	case local && asked:
		a.unknown += units
		a.leftOver += units
	}
	if res.Allowed && units > 0 {
		l.obeys(process, key, a, l.now()-took)
	}
	l.returns([3]int{process, lim, server}, err == nil && local && took == 0 && !left)
	l.note("process %d: %s %d %v by %v after %v", process, key, units, res.Allowed, res.Source, took)
	if a.rule.parts == 1 && a.rule.late == 0 && err == nil && units > 0 {
		switch {
		case local && !left: // one whose caller had little time says nothing of how long its process has decided alone
			a.fleet.alone(l.now(), a.rule.grants(l.now()), process, res.Claim, l.plan.knowsNone(process, l.now()))
			sum, most := a.fleet.sum(l.plan.claim(l.now()))
			l.check(sum <= most+0.001 || l.plan.rare(), "P5", "%s: the processes that decide alone claim %v, %.3f in all, at most %.3f", key, a.fleet.of, sum, most)
		case res.Source == limiter.SourceRedis && res.Allowed:
			a.fleet.granted(l.now(), a.rule.grants(l.now()), process)
		}
	}
	if err == nil && res.Source != limiter.SourceCache {
		a.events = append(a.events, event{at: l.now(), process: process, units: units, allowed: res.Allowed, local: local, claim: res.Claim})
	}
}

// patience checks that a Redis that cannot charge is not asked again and again:
// until the breaker opens, and then by one probe at a time. mu is held.
func (l *ledger) patience(of [3]int, units int64, res limiter.Result, took time.Duration) {
	w := l.waits[of]
	// A client that hides several servers shows which of them cannot be reached only by its calls: an
	// answer of another one, also a denial, is one of the same server then.
	answers := res.Allowed || l.plan.Shape == WrappedCluster
	if w == nil || res.Source == limiter.SourceRedis && answers && units > 0 {
		w = &waiting{since: l.now()}
		l.waits[of] = w
	}
	split := l.plan.Limits[of[1]].Parts > 1
	// Where one part denied without Redis, and then another one by it, the answer may be that of the first.
	if res.Source == limiter.SourceLocal && took > 0 && (res.Allowed || !split) {
		w.n++
		breakers := 1
		// Another server may be meant, of a part or before a process knows where a slot is.
		if (l.plan.Shape == Cluster || l.plan.Shape == Ring) && (split || l.plan.migrated(l.now())) {
			breakers = l.plan.Shape.servers()
		}
		most := breakers * (10 + 2*l.plan.Callers + int((l.now()-w.since)/(400*time.Millisecond)))
		l.check(w.n <= most, "P2", "process %d, limiter %d, server %d: %d decisions asked Redis and were not charged within %v", of[0], of[1], of[2], w.n, l.now()-w.since)
	}
}

// finish checks what holds for whole histories.
func (l *ledger) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sampledWithin()
	keys := make([]string, 0, len(l.accounts))
	for k := range l.accounts {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, key := range keys {
		a := l.accounts[key]
		again := int64(0) // what a reservation did not use is in the lease again
		if a.rule.late > 0 {
			again = a.unused
		}
		l.check(a.admittedRemote <= a.charged+again, "P1", "%s: %d units were admitted in the name of Redis, %d were charged there", key, a.admittedRemote, a.charged)
		l.check(a.admittedRemote+a.returned <= a.charged+a.owed+a.unused, "P1", "%s: %d units were admitted in the name of Redis and %d given back to it, but only %d were charged there, %d charged later, and %d not used",
			key, a.admittedRemote, a.returned, a.charged, a.owed, a.unused)
		l.bound(key, a)
		if a.rule.late > 0 {
			continue // a lease is charged before a caller asks for it
		}
		l.check(a.returned <= a.unused+a.leftOver, "P1", "%s: %d units were given back to Redis; %d were not used, and %d may have been charged for no caller", key, a.returned, a.unused, a.leftOver)
		l.check(a.charged <= a.admittedRemote+a.unknown, "P1", "%s: %d units were charged, %d admitted, and %d may have been", key, a.charged, a.admittedRemote, a.unknown)
		l.check(a.charged+a.owed <= a.admittedRemote+a.admittedLocal+a.leftOver, "P1", "%s: %d units were charged at once and %d later; %d were admitted by Redis and %d locally, and %d may have been charged for no caller",
			key, a.charged, a.owed, a.admittedRemote, a.admittedLocal, a.leftOver)
	}
}

// bound checks P5 for the whole history of a key, and for stretches of it around faults.
func (l *ledger) bound(key string, a *account) {
	l.stretch(key, a, 0, l.now())
	for _, f := range l.stretches {
		l.stretch(key, a, f[0], f[1])
	}
}

// stretch checks P5 from one time to another: limit·(t_r + Σ claim·t_p) + B·burst·(1 + E + A +
// Σ claim·L).
func (l *ledger) stretch(key string, a *account, from, to time.Duration) {
	type memory struct {
		at    time.Duration
		local bool
		claim float64
	}
	r := a.rule
	b := 1.0
	if r.aligned {
		b = 2
	}
	// A share is never below one unit, and of a window up to one unit more than it is.
	rate, burst, least := r.over(from, to)
	unit := r.parts / least
	begun := func(claim float64) float64 {
		if claim > unit && r.windowed {
			return claim + unit/b
		}
		return max(claim, unit)
	}
	last := map[int]memory{}
	var admitted int64
	var local, claims float64 // Σ claim·t in seconds, Σ claim·T
	var spans [][2]time.Duration
	first, _ := slices.BinarySearchFunc(a.events, from, func(e event, at time.Duration) int { return cmp.Compare(e.at, at) })
	for _, e := range a.events[first:] {
		if e.at > to {
			break
		}
		if e.allowed {
			admitted += e.units
		}
		if e.settled {
			continue
		}
		m, seen := last[e.process]
		if !seen {
			m = memory{from, e.local, e.claim}
			if e.local {
				claims += begun(e.claim)
			}
		}
		claim := max(m.claim, e.claim)
		if e.local || m.local {
			local += claim * (e.at - m.at).Seconds()
		}
		if !e.local || !m.local {
			spans = append(spans, [2]time.Duration{m.at, e.at})
		}
		if e.local && !m.local {
			claims += begun(claim)
		}
		last[e.process] = memory{e.at, e.local, e.claim}
	}
	for _, m := range last {
		if m.local {
			local += m.claim * (to - m.at).Seconds()
		} else {
			spans = append(spans, [2]time.Duration{m.at, to})
		}
	}
	losses := 0.0
	for _, lost := range a.lost {
		if lost.at >= from-r.late && lost.at <= to {
			losses += lost.part
		}
	}
	for _, at := range l.stepped {
		if at >= from-r.late && at <= to {
			losses++
		}
	}
	// A decision is counted when its caller knows it.
	away := float64(gaps(spans, from, to)) // times in which no process reached Redis
	bound := rate*(union(spans).Seconds()+l.gained(from-r.late, to).Seconds()+local+0.1) + b*burst*(1+losses+away+claims)
	l.check(float64(admitted) <= math.Ceil(bound)+1, "P5", "%s from %v to %v: %d units admitted, the bound is %.1f = %.3g/s·(%.1f s by Redis + %.2f s locally) + %g·%.3g·(1 + %.3g losses + %g times away + %.2f local times)",
		key, from, to, admitted, bound, rate, union(spans).Seconds(), local, b, burst, losses, away, claims)
}
