package admission

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/critical"
	"github.com/holdfast-go/holdfast/internal/wait"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// Call is one call of a client, with all of its attempts. It is not safe for concurrent
// use. Make it with Begin; the exported fields may then be set before its first
// method is called.
type Call struct {
	Key string // of limit and cooldown; "" is none
	// Scopes, if not nil, returns the keys for parts of Key that have cooldowns of their own, for
	// which the call waits, too. Responses to others name them: it is asked again after each wait.
	Scopes   func(host, key string, of any) []string
	Of       any // what is sent, for Scopes
	Cost     int // what an attempt takes from the limiter
	Attempts int // at most
	Allow    wait.Allowance
	Host     *Host
	Learnt   Learnt // nil is none
	// Canceled also ends the call, beside its context; nil is nothing else.
	Canceled <-chan struct{}
	// OnWait, if not nil, is called before each wait.
	OnWait func(Wait)

	c       *Client
	ctx     context.Context
	pace    *pace           // nil is not adaptive
	backoff *retry.Sequence // made when needed
	sent    int             // attempts so far
	sentAt  time.Duration   // when the last one was sent, by pace
	draw    float64         // of the throttle, for this attempt
	drawn   bool
	turn    turn   // in the line in which it stood last
	taken   []unit // of learnt limits, for the next attempt
	has     []unit // for the one that was sent last
	scopes  []string
	more    bool // of them have become known since it began to stand in lines
}

// unit is what a call has of the learnt limit of a key.
type unit struct {
	key string
	has Taken
}

// Begin returns a call of a client to a host, with a key; "" is none: then neither limit nor
// cooldown apply.
func Begin(ctx context.Context, c *Client, host, key string) Call {
	x := Call{
		Key: key, Cost: 1, Attempts: c.s.Attempts, Host: c.hosts.get(host),
		Allow: wait.Allowance{Each: c.s.MaxWait, Total: c.s.MaxTotal},
		c:     c, ctx: ctx,
	}
	if c.paces != nil && key != "" {
		x.pace = c.paces.GetOrAdd(key, func() *pace { return &pace{epoch: time.Now()} })
	}
	return x
}

// Admit waits until an attempt may be sent: cooldown, throttle, limiter, in this order,
// so that a call never takes from the limit only to find the key cooling down, or that
// it is not sent. Calls of a key pass in the order in which they came. A turn that falls into a
// cooldown is void: those who had one do not come back together at its end, but by the
// limiter again.
func (x *Call) Admit() *Stop {
	s := x.admit()
	if s != nil {
		x.GiveBack()
	}
	return s
}

func (x *Call) admit() *Stop {
	x.drawn = false
	x.look()
	for {
		if x.gone() {
			return &Stop{}
		}
		if x.Key == "" {
			break
		}
		ok, s := x.pass()
		if s != nil {
			return s
		}
		if ok {
			break
		}
	}
	return x.throttle() // the host may have failed during the waits
}

// pass waits in the lines of the scopes and of the key, and for the turn that it gets. It
// is not ok if it has a stop, or its turn is void.
func (x *Call) pass() (ok bool, s *Stop) {
	x.more = false
	if x.c.block != nil || x.cooling() {
		for _, scope := range x.scopes {
			if t, ok := x.stand(lineOf{key: scope, scope: true}); !ok {
				return false, t.stop
			}
		}
	}
	// While the key cools down it waits in the key's line, and has no turn in these.
	if x.Learnt != nil && !x.cooling() {
		for _, scope := range x.scopes {
			if t, ok := x.stand(lineOf{key: scope, scope: true, learnt: true}); !ok {
				return false, t.stop
			}
		}
	}
	t, ok := x.stand(lineOf{key: x.Key})
	if !ok {
		return false, t.stop
	}
	if t.delay > 0 {
		if s = x.pause(t.delay, retry.WaitLimiter, retry.Throttled); s != nil {
			s.Key = x.Key
			return false, s
		}
	}
	if x.pace != nil && !x.cooling() {
		s = x.adapt()
	}
	return !x.voids(), s
}

// look asks for the scopes.
func (x *Call) look() {
	if x.Scopes == nil {
		return
	}
	scopes := x.Scopes(x.Host.Name, x.Key, x.Of)
	x.more = x.more || len(scopes) > len(x.scopes)
	x.scopes = scopes
}

// voids reports whether a call has no turn any more: a cooldown has begun, or a scope has become known
// in whose line it has not stood.
func (x *Call) voids() bool { return x.more || x.cooling() }

// cooling reports whether the key or one of its scopes cools down.
func (x *Call) cooling() bool {
	if x.c.gates.Left(x.Key).left > 0 {
		return true
	}
	for _, scope := range x.scopes {
		if x.c.scopes.Left(scope).left > 0 {
			return true
		}
	}
	return false
}

// Send counts an attempt that is about to be sent, and returns its number, from 1.
func (x *Call) Send() int {
	x.sent++
	x.has, x.taken = x.taken, nil
	if x.pace != nil {
		x.sentAt = x.pace.start()
	}
	return x.sent
}

// GiveBack gives back what the attempt has of learnt limits: one that was admitted is not sent.
func (x *Call) GiveBack() {
	if len(x.taken) == 0 {
		return
	}
	taken := x.taken
	x.taken = nil
	Whole(x.ctx, func(ctx context.Context) {
		for _, u := range taken {
			u.has.Back(ctx)
		}
	})
}

// Sent returns how many attempts were sent.
func (x *Call) Sent() int { return x.sent }

// Has returns what the last attempt has taken of the learnt limit of a key, nil for nothing.
func (x *Call) Has(key string) Taken {
	for _, u := range x.has {
		if u.key == key {
			return u.has
		}
	}
	return nil
}

// Learnt is a limiter of what servers say of their quotas.
type Learnt interface {
	// Take asks for one request, and returns what an admitted one has of the limit: nil is nothing.
	Take(ctx context.Context, key string) (res limiter.Result, has Taken)
	blocker
}

// Taken is what a request has of a learnt limit.
type Taken interface {
	// Back gives it back, for a request that is not sent.
	Back(ctx context.Context)
}

// Evidence is what an attempt shows about its host. The zero value is nothing.
type Evidence uint8

// The evidence for a host, and against it.
const (
	Accepted Evidence = iota + 1
	Failed
)

// Report reports to the throttle of the host what an attempt shows.
func (x *Call) Report(e Evidence) {
	if th := x.Host.Throttle; th != nil && e != 0 {
		th.Report(x.ctx, e == Accepted)
	}
}

// Slow cuts the rate of adaptive pacing, after an attempt that the server has throttled
// without a time to come back.
func (x *Call) Slow() {
	if x.pace != nil {
		x.pace.throttled(x.sentAt)
	}
}

// Cooldown is what a server asks for.
type Cooldown struct {
	For    time.Duration
	Source string // what asked for it, for the log
	Scope  string // one of the scopes; "" is the key itself
	Said   any    // what the server answered, for Stop
}

// Cool makes the key, or one of its scopes, cool down, in this process and, where the
// limiter can, in the fleet. It returns for how long, or 0 when that is so already for at
// least as long.
func (x *Call) Cool(c Cooldown) time.Duration {
	if x.Key == "" || c.For <= 0 {
		return 0
	}
	key, gates := x.gateOf(c)
	d := min(c.For, Max)
	wasOpen, longer := gates.Close(key, c.For, c.Said)
	if longer <= 0 {
		return 0
	}
	if wasOpen {
		x.c.logger.LogAttrs(x.ctx, slog.LevelInfo, "holdfast: cooling down",
			slog.String("host", x.Host.Name), slog.Duration("for", d), slog.Time("until", time.Now().Add(d)), slog.String("source", c.Source))
	}
	if gates.News(key, d) {
		x.tell(key, d)
	}
	return d
}

// Hold lets the key, or one of its scopes, cool down in this process for at most d, until it is known what
// the server asks for. It ends with release, unless Cool was called meanwhile.
func (x *Call) Hold(c Cooldown, d time.Duration) (release func()) {
	if x.Key == "" || c.For <= 0 {
		return func() {}
	}
	key, gates := x.gateOf(c)
	return gates.Hold(key, c.For, d, c.Said)
}

func (x *Call) gateOf(c Cooldown) (key string, gates *Gates) {
	if c.Scope != "" {
		return c.Scope, x.c.scopes
	}
	return x.Key, x.c.gates
}

// tell lets the fleet know that a key cools down, also when the caller leaves meanwhile. When Redis
// is unavailable this process still waits for the gate, which is all that can be done.
func (x *Call) tell(key string, d time.Duration) {
	blockers := slices.DeleteFunc([]blocker{x.c.block, x.Learnt}, func(b blocker) bool { return b == nil })
	if len(blockers) == 0 {
		return
	}
	Whole(x.ctx, func(ctx context.Context) {
		for _, b := range blockers {
			_ = b.Block(ctx, key, d)
		}
	})
}

// Whole calls do, which ends with the budgets of its calls of Redis, also when ctx ends meanwhile: then the caller
// leaves, and do goes on.
func Whole(ctx context.Context, do func(ctx context.Context)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(context.WithoutCancel(ctx))
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Answer is what a failed attempt says about the wait before another one.
type Answer struct {
	Asked  bool // the server named the wait
	Wait   time.Duration
	Source string        // what named it
	Least  time.Duration // the shortest wait when the server names none, or 0
}

// Next returns the wait before another attempt, or why it does not fit.
func (x *Call) Next(a Answer) (Wait, *Stop) {
	w := Wait{For: a.Wait, Why: retry.WaitServer, Source: a.Source}
	if !a.Asked {
		if x.backoff == nil {
			x.backoff = x.c.s.Backoff.Start()
		}
		w = Wait{For: x.backoff.Next(), Why: retry.WaitBackoff}
	}
	over := w.For / 2
	switch {
	case a.Asked && w.For > 0:
	case w.For < a.Least: // "now" is no pause, and neither is a backoff of no length
		w.For, over = a.Least, a.Least/2
	default:
		over = 0 // backoff has its own jitter
	}
	d, b := x.Allow.Next(x.ctx, w.For, over, x.Host.Budget)
	switch b {
	case 0:
		w.For = d
		return w, nil
	case wait.Budget:
		return Wait{}, &Stop{Reason: retry.BudgetSpent, Wait: d}
	default:
		return Wait{}, &Stop{Reason: retry.WaitTooLong, Wait: d, Err: b.Err()}
	}
}

// RestartBackoff begins the waits of the backoff again.
func (x *Call) RestartBackoff() { x.backoff = nil }

// Wait waits as Next says.
func (x *Call) Wait(w Wait) *Stop {
	if x.OnWait != nil {
		x.OnWait(w)
	}
	if x.gone() || !x.Allow.Sleep(x.ctx, w.For, x.Canceled, nil) {
		return &Stop{}
	}
	return nil
}

// gone reports whether the caller has given up.
func (x *Call) gone() bool {
	select {
	case <-x.Canceled:
		return true
	default:
		return x.ctx.Err() != nil
	}
}

// throttle rejects the attempt, at random, the more often the more the host fails.
func (x *Call) throttle() *Stop {
	th := x.Host.Throttle
	if th == nil || !th.Rejecting() {
		return nil
	}
	if !x.drawn {
		x.draw, x.drawn = th.Draw(), true
	}
	if x.draw >= th.Probability(critical.Is(x.ctx)) {
		return nil
	}
	return &Stop{Reason: retry.HostFailing, Wait: th.Wait()}
}

// adapt waits for the turn of adaptive pacing.
func (x *Call) adapt() *Stop {
	d, ok := x.pace.delay(x.Allow.Most(x.ctx))
	if ok && d == 0 {
		return nil
	}
	// If it did not get the turn, neither does the wait fit.
	return x.pause(d, retry.WaitAdaptive, retry.Throttled)
}

// pause waits for d; where d does not fit, it returns the reason at once.
func (x *Call) pause(d time.Duration, why retry.WaitReason, reason retry.Reason) *Stop {
	if s := x.fits(d, reason); s != nil {
		return s
	}
	return x.Wait(Wait{For: d, Why: why})
}

// fits returns the reason why a call does not wait for d.
func (x *Call) fits(d time.Duration, reason retry.Reason) *Stop {
	if _, b := x.Allow.Next(x.ctx, d, 0, nil); b != 0 {
		return &Stop{Reason: reason, Wait: d, Err: b.Err()}
	}
	return nil
}
