package admission

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/critical"
	"github.com/holdfast-go/holdfast/internal/wait"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

const (
	// minPause keeps a limiter that denies without a time to retry from being asked in a
	// busy loop.
	minPause = time.Millisecond
	// maxJitter bounds the jitter of waits for a limit that processes share.
	maxJitter = 50 * time.Millisecond
)

// lineOf names a line of calls: those of a key, or those that wait for a scope within it; for the
// limiter, or for what is learnt.
type lineOf struct {
	key    string
	scope  bool
	learnt bool
}

// errStopped ends a wait without a turn: with a Stop, or the turn is void.
var errStopped = errors.New("stopped")

// turn is what a call gets from one line.
type turn struct {
	of    lineOf
	cool  cooling       // what it waits for, if that is a cooldown
	delay time.Duration // after which the limiter lets it start
	stop  *Stop
}

// stand waits in a line until the call may pass. It is not ok if the call stops, or if its turn is void: then there is no stop.
func (x *Call) stand(of lineOf) (t turn, ok bool) {
	first := critical.Is(x.ctx)
	ahead := x.c.lines.Look(of, first)
	x.turn = turn{of: of}
	var a wait.Answer
	if !ahead.Any {
		var err error
		if a, err = x.ask(); err != nil || a.Go {
			return x.turn, err == nil
		}
	}
	// A copy waits, so that a call that need not wait takes no memory.
	w := &waiting{Call: *x}
	err := w.c.lines.Stand(of, max(1, w.Cost), first, ahead, a, w)
	*x = w.Call
	return x.turn, err == nil
}

// ask asks the gate, the throttle, what is learnt and the limiter. The call takes of the last two at once: calls
// that had taken of the one and waited for the other would leave together, faster than the first allows. That
// another process has made a scope cool down is a block of the scope, which is asked about without taking anything.
func (x *Call) ask() (a wait.Answer, err error) {
	if x.closed() {
		left := x.turn.cool.left
		// The others of the line need the rest of the longest wait, too: they came when this one did.
		over := min(x.turn.cool.spread, max(0, x.Allow.Each-left)/2)
		return wait.Answer{After: left, Over: over, Most: x.Allow.Most(x.ctx)}, nil
	}
	n, of := x.Cost, x.turn.of
	if of.scope && !of.learnt {
		n = 0
	} else {
		if x.voids() {
			return a, errStopped // void: by one of its scopes, for which others need not wait
		}
		// What the throttle rejects must not take from a limit that others share.
		if s := x.throttle(); s != nil {
			return a, x.ends(s)
		}
	}
	a.Go = true
	if x.Learnt != nil && (of.learnt || !of.scope) {
		if a, err = x.take(of); err != nil || !a.Go {
			return a, err
		}
	}
	if of.learnt || x.c.s.Limiter == nil || of.scope && x.c.block == nil {
		return a, nil
	}
	ctx := x.ctx
	if n > 0 && x.c.mayShape() {
		ctx = wait.WithMostDelay(ctx, x.Allow.Most(ctx)) // a place that comes later is not taken
	}
	res, err := x.c.s.Limiter.AllowN(ctx, of.key, n)
	switch {
	case err != nil && x.gone():
		return a, x.ends(&Stop{})
	case err != nil:
		return a, x.ends(&Stop{Reason: retry.LimiterFailed, Key: x.turn.of.key, Err: err})
	}
	shapes := shaping(res.Limit)
	if shapes && !x.c.shapes.Load() {
		x.c.shapes.Store(true)
	}
	if !res.Allowed {
		return x.denied(res, n, false)
	}
	x.turn.delay = res.Delay
	room := roomOf(res)
	if n > 0 && shapes { // in which who asks first starts first
		room = 0
	}
	if x.Learnt != nil && !of.scope {
		room = min(room, a.Room)
	}
	a.Room = room
	return a, nil
}

// take takes what is learnt of the key of a line, and of the call's scopes what it has given back since it
// stood in their lines.
func (x *Call) take(of lineOf) (a wait.Answer, err error) {
	if !of.scope {
		for _, scope := range x.scopes {
			if res := x.takeOne(scope); !res.Allowed {
				return a, errStopped // void: the call waits for it in its own line
			}
		}
	}
	res := x.takeOne(of.key)
	if !res.Allowed {
		return x.denied(res, x.Cost, true)
	}
	return wait.Answer{Go: true, Room: roomOf(res)}, nil
}

// takeOne takes what is learnt of a key, if the call does not have it: it may ask again without a pause in between.
func (x *Call) takeOne(key string) limiter.Result {
	if slices.ContainsFunc(x.taken, func(u unit) bool { return u.key == key }) {
		return limiter.Result{Allowed: true}
	}
	res, has := x.Learnt.Take(x.ctx, key)
	if has != nil {
		x.taken = append(x.taken, unit{key, has})
	}
	return res
}

// roomOf is for how many others there is room after an answer.
func roomOf(res limiter.Result) int {
	if res.Source != limiter.SourceLocal {
		return res.Remaining / 2 // for those of other processes, too
	}
	return res.Remaining
}

// denied is the answer to a denial of n units, of the limiter or of what is learnt.
func (x *Call) denied(res limiter.Result, n int, learnt bool) (a wait.Answer, err error) {
	rate := res.Limit.Rate()
	a.After = max(minPause, res.RetryAfter)
	if err := x.turnFits(a.After); err != nil {
		return a, err
	}
	a.Over, a.Most = wait.Crowd(a.After, rate.N, rate.Per, n), x.Allow.Most(x.ctx)
	if learnt { // they meet at a limiter of ours, not at the server
		a.Over = min(a.Over, rate.Per/4)
	}
	if a.Aside = res.BeyondClaim; res.Claim > 0 {
		a.InPlaceOfRedis()
	}
	if a.Over == 0 && res.Source != limiter.SourceLocal { // or the process that is nearest to Redis would take each unit
		a.After = wait.Spread(a.After, min(a.After/4, maxJitter), a.Most)
	}
	return a, nil
}

// closed reports whether the gate of the line is closed.
func (x *Call) closed() bool {
	gates := x.c.gates
	if x.turn.of.scope {
		gates = x.c.scopes
	}
	x.turn.cool = gates.Left(x.turn.of.key)
	return x.turn.cool.left > 0
}

func (x *Call) ends(s *Stop) error {
	x.turn.stop = s
	return errStopped
}

// reason is why it ends, if it cannot wait any more.
func (x *Call) reason() (retry.WaitReason, retry.Reason) {
	if x.turn.cool.left > 0 {
		return retry.WaitCooldown, retry.CoolingDown
	}
	return retry.WaitLimiter, retry.Throttled
}

// turnFits ends the call if it cannot wait for d.
func (x *Call) turnFits(d time.Duration) error {
	_, reason := x.reason()
	s := x.fits(d, reason)
	if s == nil {
		return nil
	}
	return x.turnEnds(s)
}

// turnEnds ends the call for a reason of its turn.
func (x *Call) turnEnds(s *Stop) error {
	if s.Key = x.turn.of.key; s.Reason == retry.CoolingDown {
		s.Wait, s.Said = x.turn.cool.asked, x.turn.cool.said
	}
	return x.ends(s)
}

// waiting is a call in a line.
type waiting struct {
	Call
	stands bool // the hook knows that it stands behind others
}

// Ask asks whether the call may pass.
func (w *waiting) Ask() (wait.Answer, error) { return w.ask() }

// Queue ends a call that cannot wait until the first of the line asks.
func (w *waiting) Queue(_ int, after time.Duration) error {
	w.closed()
	d := max(after, w.turn.cool.left)
	if err := w.turnFits(d); err != nil {
		return err
	}
	if !w.stands {
		w.stands = true
		w.waits(d)
	}
	return nil
}

// waits calls the hook before a wait.
func (w *waiting) waits(d time.Duration) {
	if w.OnWait != nil {
		why, _ := w.reason()
		w.OnWait(Wait{For: d, Why: why})
	}
}

// Sleep waits for d, or until called; only for that if d is below 0, for as long as the
// call can wait.
func (w *waiting) Sleep(d time.Duration, called <-chan struct{}) error {
	inLine := d < 0
	if inLine {
		d = max(1, w.Allow.Most(w.ctx))
	} else {
		if err := w.turnFits(d); err != nil {
			return err
		}
		w.waits(d)
	}
	w.GiveBack() // who waits for one limit keeps nothing of the others from those who need not
	start := time.Now()
	if w.gone() || !w.Allow.Sleep(w.ctx, d, w.Canceled, called) {
		return w.ends(&Stop{})
	}
	w.look()
	if !inLine || time.Since(start) < d {
		return nil
	}
	w.closed()
	_, reason := w.reason()
	s := &Stop{Reason: reason} // how long those ahead need is not known
	if none := w.fits(minPause, reason); none != nil {
		s.Err = none.Err
	}
	return w.turnEnds(s)
}
