package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/retry"
)

// Host is an HTTP API that all processes call, with a quota of its own for all of them
// together. The zero value is none.
type Host struct {
	Limit  int // requests in each window, beyond which it answers 429 with Retry-After
	Window time.Duration
	Fails  float64 // the part of the other requests that fails
	// Floor is that of the budget of each process for retries: 0 is the default, and less is none.
	Floor float64
	// Says lets it say its quota in each response: all processes learn it and keep it together.
	Says bool
}

// cooldown is a time in which nothing may be sent.
type cooldown struct{ from, until time.Duration }

func (c cooldown) holds(now time.Duration) bool { return now > c.from && now < c.until }

// load is what a process has sent to a host.
type load struct{ retries, succeeded int }

// attempts is the key under which a request has how often it was sent.
type attempts struct{}

// api is a Host in a world. It checks that no process calls it while it has asked for a pause.
type api struct {
	Host
	w *World

	mu     sync.Mutex
	rng    *rand.Rand
	window time.Duration // which began then
	count  int
	open   int              // bodies of responses
	told   map[int]cooldown // by process
	fleet  cooldown         // of the others, who know it by Redis
	teller *process         // of fleet
	sent   map[int]load     // by process
	// The fleet knows the quota since then, and a response has said it last then.
	known, said time.Duration
}

func newAPI(w *World) *api {
	return &api{Host: w.Host, w: w, rng: rand.New(rand.NewPCG(w.Seed, 3000)), told: map[int]cooldown{}, sent: map[int]load{}}
}

var errHost = errors.New("the connection to the host was reset")

// remembered is how long at least a quota is known of which no response says more.
const remembered = 9 * time.Minute

// spreads is how long a cooldown needs to reach the other processes: a call of Redis, and what was
// decided before it and is not sent yet.
const spreads = 4 * budget

// of is the way of a process to the host.
func (a *api) of(p *process) http.RoundTripper { return way{a, p} }

type way struct {
	a *api
	p *process
}

// leaves is the key under which a request has what its caller leaves by: at the moment of its first response.
type leaves struct{}

// RoundTrip answers a request.
func (y way) RoundTrip(r *http.Request) (*http.Response, error) {
	a := y.a
	deadline, ok := r.Context().Deadline()
	there, back, status, wait, left := a.arrives(y.p, ok && time.Until(deadline) < 2*budget)
	a.within(y.p, r.Context().Value(attempts{}).(*int), status)
	if err := sleep(r.Context(), there); err != nil {
		return nil, err
	}
	if status == 0 {
		return nil, errHost
	}
	if err := sleep(r.Context(), back); err != nil {
		return nil, err
	}
	header := http.Header{}
	if a.Says {
		a.says(header, left)
	}
	if wait > 0 {
		header.Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
	}
	a.tells(y.p, wait)
	if leave, hasty := r.Context().Value(leaves{}).(context.CancelFunc); hasty {
		leave()
	}
	return &http.Response{StatusCode: status, Header: header, Request: r, ProtoMajor: 1, ProtoMinor: 1, Body: &body{strings.NewReader("body"), a, sync.Once{}}, ContentLength: 4}, nil
}

// arrives checks that a request may be sent, and draws its answer: a status, 0 for none, and the
// seconds that it asks to wait, and what is left of its quota. For a caller that is hurried the decision may have been local, without
// what Redis knows.
func (a *api) arrives(p *process, hurried bool) (there, back time.Duration, status int, wait time.Duration, of quota) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, now := a.w.ledger, a.w.now()
	calm := a.fleet.from > 0 && !a.teller.gone.Load() && a.w.calmSince(now, -1)+20*time.Second <= a.fleet.from
	l.mu.Lock()
	// After a step of a clock a process may ask for a limit of a calendar much later, and learn of another window only then.
	calm = calm && (a.w.Limits[0].Unit == 0 || len(l.stepped) == 0)
	l.note("process %d sends a request", p.n)
	told := a.told[p.n]
	l.check(!told.holds(now), "cooldown", "process %d sends a request, and knows since %v to send none until %v", p.n, told.from, told.until)
	if calm && !hurried && now > a.fleet.from+spreads && now > l.changed+returning {
		l.check(now >= a.fleet.until, "cooldown", "process %d sends a request, and process %d knows since %v to send none until %v", p.n, a.teller.n, a.fleet.from, a.fleet.until)
	}
	l.mu.Unlock()
	if began := now.Truncate(a.Window); began != a.window {
		a.window, a.count = began, 0
	}
	there, back = between(a.rng, time.Millisecond, 200*time.Millisecond), between(a.rng, time.Millisecond, time.Second)
	left := (a.window + a.Window - now + time.Second - 1).Truncate(time.Second)
	a.count++
	of = quota{max(0, a.Limit-a.count), left}
	switch {
	case a.count > a.Limit:
		a.rejects(p, now, hurried)
		return there, back, http.StatusTooManyRequests, left, of
	case a.rng.Float64() >= a.Fails:
		return there, back, http.StatusOK, 0, of
	}
	switch a.rng.IntN(4) {
	case 0:
		return there, back, http.StatusServiceUnavailable, time.Duration(1+a.rng.IntN(20)) * time.Second, of
	case 1:
		return there, back, http.StatusServiceUnavailable, 0, of
	case 2:
		return there, back, http.StatusInternalServerError, 0, of
	}
	return there, back, 0, 0, of
}

// quota is what is left of a window, and of its requests.
type quota struct {
	requests int
	window   time.Duration
}

// says writes the quota into a response, as draft-ietf-httpapi-ratelimit-headers has it.
func (a *api) says(h http.Header, left quota) {
	h.Set("RateLimit-Policy", fmt.Sprintf(`"window";q=%d;w=%d`, a.Limit, a.Window/time.Second))
	h.Set("RateLimit", fmt.Sprintf(`"window";r=%d;t=%d`, left.requests, left.window/time.Second))
}

// rejects checks that no request is sent for which a host that says its quota has no room, where no fault is near.
func (a *api) rejects(p *process, now time.Duration, hurried bool) {
	since := max(a.known, a.w.calmSince(now, -1)) + 2*a.Window + 20*time.Second
	if !a.Says || hurried || now < since || now-a.said > remembered {
		return
	}
	l := a.w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check(false, "cooldown", "process %d sends a request beyond the quota of %d that the host says", p.n, a.Limit)
}

// budget makes the budget of a process.
func (h Host) budget() *retry.Budget {
	return must(retry.NewBudget(retry.BudgetSettings{Floor: h.Floor}))
}

// within checks that a process sends no more retries than its budget has granted until now: of what has succeeded, and
// by the floor, of which a second's part, and one at least, may be spent at once.
func (a *api) within(p *process, attempt *int, status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.sent[p.n]
	if *attempt++; *attempt > 1 {
		of.retries++
		floor := max(0, cmp.Or(a.Floor, retry.DefaultBudgetFloor))
		most := retry.DefaultBudgetRatio * float64(of.succeeded)
		if floor > 0 {
			most += floor*a.w.now().Seconds() + max(1, floor)
		}
		a.w.ledger.mu.Lock()
		a.w.ledger.check(float64(of.retries) <= most, "P7", "process %d has sent %d retries, and %d requests have succeeded: its budget is %.1f", p.n, of.retries, of.succeeded, most)
		a.w.ledger.mu.Unlock()
	}
	if status == http.StatusOK {
		of.succeeded++
	}
	a.sent[p.n] = of
}

// tells notes what a process learns from a response.
func (a *api) tells(p *process, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open++
	now := a.w.now()
	if now-a.said > remembered {
		a.known = now
	}
	a.said = now
	told := a.told[p.n]
	left := max(0, told.until-now)
	if wait <= left {
		return
	}
	if left == 0 {
		told.from = now
	}
	told.until = now + wait
	a.told[p.n] = told
	// Redis learns nothing of a cooldown that lasts a little longer.
	if wait-left > wait/10 && told.until > a.fleet.until && a.w.tellsFleet() && !p.gone.Load() {
		a.fleet, a.teller = cooldown{now, told.until}, p
	}
}

// tellsFleet reports that the limiter of the transports tells the others of a cooldown at once: they
// hold no leases, nor turns whose time is yet to come.
func (w *World) tellsFleet() bool {
	l := w.Limits[0]
	return l.Lease == 0 && !strings.Contains(l.Algorithm(), "shaping")
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// body is that of a response, which its reader has to close.
type body struct {
	io.Reader
	a    *api
	once sync.Once
}

// Close closes it.
func (b *body) Close() error {
	b.once.Do(func() {
		b.a.mu.Lock()
		defer b.a.mu.Unlock()
		b.a.open--
	})
	return nil
}

// closed checks that every body was closed.
func (a *api) closed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.check(a.open == 0, "P8", "%d bodies of responses are open at the end", a.open)
}

// request calls the host, and checks how that ends.
func (p *process) request(rng *rand.Rand) {
	w := p.w
	ctx, cancel := context.WithTimeout(context.Background(), between(rng, 100*time.Millisecond, 2*time.Minute))
	defer cancel()
	p.callers.Go(func() { // a process that ends leaves its requests
		defer cancel()
		select {
		case <-w.done:
		case <-p.end:
		case <-ctx.Done():
		}
	})
	asked := context.WithValue(ctx, attempts{}, new(int))
	if rng.IntN(8) == 0 {
		asked = context.WithValue(asked, leaves{}, cancel)
	}
	method := http.MethodGet
	if rng.IntN(3) == 0 {
		method = http.MethodPost
	}
	r := must(http.NewRequestWithContext(asked, method, "http://api.test/", nil))
	resp, err := p.transport.RoundTrip(r)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	gone := ctx.Err() != nil
	_, typed := errors.AsType[*httpclient.Error](err)
	end, _ := ctx.Deadline()
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.check(err == nil || gone || typed || errors.Is(err, errHost), "P3", "process %d: a request ended with %v", p.n, err)
	w.ledger.check(!time.Now().After(end), "P9", "process %d: a request ended %v late", p.n, time.Since(end))
}
