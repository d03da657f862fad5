package inbound_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/inbound"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

// TestProblems: what an error of a limiter means, and what the sender reads of it.
func TestProblems(t *testing.T) {
	secret := errors.New("what Redis says")
	for _, c := range []struct {
		err  error
		want inbound.Problem
		says string
	}{
		{limiter.ErrCostExceedsLimit, inbound.Invalid, "the call costs more than the limit can ever admit"},
		{limiter.ErrInvalidCost, inbound.Invalid, "the cost of the call is negative"},
		{limiter.ErrInvalidKey, inbound.Invalid, "the rate-limit key of the call cannot be used"},
		{fmt.Errorf("%w: %w", limiter.ErrUnavailable, context.DeadlineExceeded), inbound.Unavailable, "the rate limiter is unavailable"},
		{limiter.ErrClosed, inbound.Unavailable, "the rate limiter is unavailable"},
		{context.Canceled, inbound.Canceled, "the call ended before the rate limiter had answered"},
		{&limiter.WaitError{}, inbound.Expired, "the call ended before the rate limiter had answered"},
		{secret, inbound.Failed, "the rate limiter failed"},
	} {
		p := inbound.ProblemOf(c.err)
		if says := p.Reason("call", c.err); p != c.want || says != c.says {
			t.Errorf("%v: problem %d, want %d: %q", c.err, p, c.want, says)
		}
	}
	for _, p := range []inbound.Problem{inbound.NoKey, inbound.Unauthenticated} {
		if says := p.Reason("request", inbound.ErrNoKey); says != "the request has no rate-limit key" {
			t.Errorf("%d: %q", p, says)
		}
	}
	if says := inbound.KeyFailed.Reason("request", secret); says != "the rate limiter failed" {
		t.Errorf("a key that failed: %q", says)
	}
}

// TestPrintable: names of policies are sent in headers.
func TestPrintable(t *testing.T) {
	for name, want := range map[string]bool{"": false, "a b~": true, "\x1f": false, "\x7f": false, "ä": false, " ": true} {
		if inbound.Printable(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// permits are granted or denied, as they say.
type permits struct {
	semaphore.Acquirer
	err    error
	permit semaphore.Permit
	key    string
}

func (p *permits) TryAcquire(_ context.Context, key string) (*semaphore.Permit, error) {
	p.key = key
	return &p.permit, p.err
}

// TestPermitsOfRequests: a permit is asked for when the request is to be served, and one that is
// not granted denies it.
func TestPermitsOfRequests(t *testing.T) {
	admitted := inbound.Decision{Key: "k", Result: limiter.Result{Allowed: true}}
	granted := &permits{permit: semaphore.Permit{Result: limiter.Result{Allowed: true}}}
	rules := inbound.New(limiter.Allower(nil), inbound.Some(func(context.Context, string) string { return "k" }))
	d := admitted
	if rules.Acquire(t.Context(), &d) != nil || d.Problem != 0 {
		t.Error("a permit without a bound")
	}
	rules.Semaphore = granted
	if rules.Acquire(t.Context(), &d) != &granted.permit || d.Problem != 0 || granted.key != "k" {
		t.Errorf("%+v", d)
	}
	if d.Problem = inbound.Denied; rules.Acquire(t.Context(), &d) != nil {
		t.Error("a permit for a request that is denied")
	}
	d, rules.Semaphore = admitted, &permits{permit: semaphore.Permit{Result: limiter.Result{RetryAfter: 3 * time.Second}}}
	if rules.Acquire(t.Context(), &d) != nil || d.Problem != inbound.Denied || d.Policy != "concurrency" || d.Result.Allowed || d.Result.RetryAfter != 3*time.Second {
		t.Errorf("%+v", d)
	}
	d, rules.Semaphore = admitted, &permits{err: limiter.ErrUnavailable}
	if rules.Acquire(t.Context(), &d) != nil || d.Problem != inbound.Unavailable || !errors.Is(d.Err, limiter.ErrUnavailable) {
		t.Errorf("%+v", d)
	}
}

// TestJoinedKeys: one that is not valid makes the whole so. Each part has its length in decimal
// before it, in each version: with another key a caller would have a fresh limit.
func TestJoinedKeys(t *testing.T) {
	some := inbound.Some(func(context.Context, string) string { return "k" })
	broken := inbound.Key[string]{Err: errors.New("broken")}
	for name, c := range map[string]struct {
		keys []inbound.Key[string]
		ok   bool
	}{
		"none":       {},
		"one":        {[]inbound.Key[string]{some}, true},
		"broken":     {[]inbound.Key[string]{some, broken}, false},
		"zero value": {[]inbound.Key[string]{{}, some}, false},
	} {
		k := inbound.Join(c.keys)
		if ok := k.Err == nil && k.Of != nil; ok != c.ok {
			t.Errorf("%s: %v", name, ok)
		}
	}
	long := inbound.Some(func(context.Context, string) string { return string(make([]byte, 1000)) })
	if key, err := inbound.Join([]inbound.Key[string]{long, some}).Of(t.Context(), ""); err != nil || len(key) > 100 || key[len(key)-3:] != "1:k" || !strings.HasPrefix(key, "71:sha256:") {
		t.Errorf("%q %v", key, err)
	}
}

// TestRulesCheck: a limit per request for each part of a Multi, and for nothing that is none.
func TestRulesCheck(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is sent
	defer rdb.Close()
	made := func() *limiter.Limiter {
		l, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(1), 1), limiter.WithPrefix(rand.Text()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	l := made()
	multi, err := limiter.NewMulti(limiter.Part{Name: "a", Limiter: made()}, limiter.Part{Name: "b", Limiter: made()})
	if err != nil {
		t.Fatal(err)
	}
	tier := func(context.Context, string) limiter.Limit { return limiter.Limit{} }
	for _, c := range []struct {
		name    string
		allower limiter.Allower
		tiers   int
		missing inbound.Missing
		ok      bool
	}{
		{"a limiter", l, 0, 0, true},
		{"a limiter with a tier", l, 1, inbound.MissingShared, true},
		{"a limiter with two", l, 2, 0, false},
		{"a Multi", multi, 0, 0, true},
		{"a Multi with one tier", multi, 1, 0, false},
		{"a Multi with two", multi, 2, 0, true},
		{"a Multi with three", multi, 3, 0, false},
		{"no such constant", l, 0, inbound.MissingShared + 1, false},
	} {
		rules := inbound.New(c.allower, inbound.Some(func(context.Context, string) string { return "k" }))
		rules.Missing = c.missing
		for range c.tiers {
			rules.Tiers = append(rules.Tiers, tier)
		}
		if err := rules.Check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// fails is a limiter that answers with an error, or admits.
type fails struct{ err error }

func (f fails) AllowN(context.Context, string, int) (limiter.Result, error) {
	return limiter.Result{Allowed: f.err == nil}, f.err
}

// TestPolicyOfADenial: only a denial names the policy that it is by.
func TestPolicyOfADenial(t *testing.T) {
	key := inbound.Some(func(context.Context, string) string { return "k" })
	for name, allower := range map[string]limiter.Allower{"an error": fails{errors.New("broken")}, "admitted": fails{}} {
		rules := inbound.New(allower, key)
		if err := rules.Check(); err != nil {
			t.Fatal(err)
		}
		if d := rules.Decide(t.Context(), ""); d.Policy != "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// TestCostOfEachKind: a request takes its cost whether the call for it is plain, has a limit of its own, or is reserved.
func TestCostOfEachKind(t *testing.T) {
	day := limiter.FixedWindow(limiter.Per(10, 24*time.Hour))
	for name, set := range map[string]func(*inbound.Rules[string]){
		"plain":    func(*inbound.Rules[string]) {},
		"tier":     func(r *inbound.Rules[string]) { r.Tiers = append(r.Tiers, nil) },
		"reserved": func(r *inbound.Rules[string]) { r.Reserves = true },
	} {
		lim, err := limiter.NewLocal(day)
		if err != nil {
			t.Fatal(err)
		}
		rules := inbound.New(lim, inbound.Some(func(context.Context, string) string { return "k" }))
		rules.Cost = func(context.Context, string) int { return 3 }
		set(&rules)
		if err := rules.Check(); err != nil {
			t.Fatal(err)
		}
		if d := rules.Decide(t.Context(), ""); d.Err != nil || d.Result.Remaining != 7 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
