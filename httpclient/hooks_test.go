package httpclient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		add := func(format string, args ...any) { events = append(events, fmt.Sprintf(format, args...)) }
		r := get(t, api)
		h := httpclient.Hooks{
			Attempt: func(ctx context.Context, a httpclient.AttemptInfo) {
				add("attempt %d: %d %v %v", a.Number, a.Status, a.Err, a.Request == r && ctx == r.Context())
			},
			Wait: func(_ context.Context, w httpclient.WaitInfo) {
				if w.For < time.Second || w.For > 3*time.Second || w.Request != r {
					t.Errorf("%+v", w)
				}
				add("wait: %v %q", w.Why, w.Source)
			},
			Cooldown: func(_ context.Context, c httpclient.CooldownInfo) { add("cooldown: %s %v", c.Key, c.For) },
			GiveUp: func(ctx context.Context, g httpclient.GiveUpInfo) {
				add("give up: %v %v", g.Error.Reason, g.Request == r && ctx == r.Context())
			},
		}
		rt := newTransport(t, scripted(status(429, "Retry-After", "2"), status(429), status(200)), httpclient.WithHooks(h))
		respondsWith(t, rt, r, 200)
		respondsWith(t, newTransport(t, scripted(status(503, "Retry-After", "999")), httpclient.WithHooks(h)), r, 503)
		lim := newLocal(t, limiter.TokenBucket(limiter.PerHour(1), 1))
		rt = newTransport(t, scripted(status(200)), httpclient.WithHooks(h), httpclient.WithLimiter(lim))
		respondsWith(t, rt, r, 200)
		failsFor(t, rt, r, retry.Throttled)
		want := []string{
			"attempt 1: 429 <nil> true",
			"cooldown: api.test 2s",
			`wait: server "Retry-After"`,
			"attempt 2: 429 <nil> true",
			`wait: backoff ""`,
			"attempt 3: 200 <nil> true",
			"attempt 1: 503 <nil> true",
			"cooldown: api.test 16m39s",
			"give up: wait too long true",
			"attempt 1: 200 <nil> true",
			"give up: throttled true",
		}
		if got := strings.Join(events, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("events\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	})
}

// TestCooldownIsToldOnce: not again for as long, and with the key of the quota that it is of.
func TestCooldownIsToldOnce(t *testing.T) {
	for name, p := range map[string]reply{
		"api.test 10s":               status(429, "Retry-After", "10"),
		"api.test#github/search 10s": status(429, "X-RateLimit-Resource", "search", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "10"),
	} {
		synctest.Test(t, func(t *testing.T) {
			var told []string
			rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				return respond(r, p), nil
			}), httpclient.WithHooks(httpclient.Hooks{Cooldown: func(_ context.Context, c httpclient.CooldownInfo) {
				told = append(told, fmt.Sprint(c.Key, " ", c.For))
			}}))
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { respondsWith(t, rt, once(get(t, api)), 429) })
			}
			wg.Wait()
			if strings.Join(told, ", ") != name {
				t.Errorf("told %v, want %s", told, name)
			}
		})
	}
}

func TestHooksKnowHowLongAttemptsTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			time.Sleep(1234 * time.Millisecond)
			return respond(r, status(200)), nil
		})
		var took time.Duration
		h := httpclient.Hooks{Attempt: func(_ context.Context, a httpclient.AttemptInfo) { took = a.Took }}
		respondsWith(t, newTransport(t, base, httpclient.WithHooks(h), httpclient.WithoutThrottle()), get(t, api), 200)
		if took != 1234*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

func TestLogsTransitionsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		log := slog.New(slog.NewTextHandler(&buf, nil))
		changes := 0
		rt, err := httpclient.New(scripted(status(429, "Retry-After", "300")), httpclient.WithLogger(log),
			httpclient.WithThrottle(retry.ThrottleSettings{MinRequests: 2, Rand: zero, OnChange: func(context.Context, retry.ThrottleChange) { changes++ }}))
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if resp, err := rt.RoundTrip(get(t, api)); err == nil {
				resp.Body.Close()
			}
		}
		if n := strings.Count(buf.String(), "\n"); n != 1 || !strings.Contains(buf.String(), "cooling down") {
			t.Errorf("logged\n%s", buf.String())
		}
		buf.Reset()
		rt, err = httpclient.New(scripted(status(500)), httpclient.WithLogger(log),
			httpclient.WithThrottle(retry.ThrottleSettings{MinRequests: 2, Rand: zero, OnChange: func(context.Context, retry.ThrottleChange) { changes++ }}))
		if err != nil {
			t.Fatal(err)
		}
		send(t, rt, 10)
		if n := strings.Count(buf.String(), "\n"); n != 1 || !strings.Contains(buf.String(), "host fails; throttled") {
			t.Errorf("logged\n%s", buf.String())
		}
		if changes != 1 {
			t.Errorf("OnChange was called %d times", changes)
		}
	})
}

// TestLogsAHostsOutageOnce: one line when it begins and one when it is over, by
// names, with since when; none for the probes in between.
func TestLogsAHostsOutageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		made := time.Now()
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			if since := time.Since(made); since > time.Second && since < time.Hour {
				return respond(r, status(500)), nil
			}
			return respond(r, status(200)), nil
		})
		rt, err := httpclient.New(base, httpclient.WithLogger(slog.New(slog.NewJSONHandler(&buf, nil))), httpclient.WithAttempts(1),
			strict(2))
		if err != nil {
			t.Fatal(err)
		}
		for time.Since(made) < 2*time.Hour {
			if resp, err := rt.RoundTrip(get(t, api)); err == nil {
				resp.Body.Close()
			}
			time.Sleep(10 * time.Second)
		}
		var lines []map[string]any
		for dec := json.NewDecoder(&buf); dec.More(); {
			var line map[string]any
			if err := dec.Decode(&line); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		if len(lines) != 2 {
			t.Fatalf("logged %v", lines)
		}
		down, up := lines[0], lines[1]
		began := made.Add(20 * time.Second).Format(time.RFC3339Nano)
		if down["level"] != "WARN" || down["msg"] != "holdfast: host fails; throttled" || down["host"] != "api.test" || down["since"] == nil || down["requests"] != 2. || down["accepts"] != 0. || down["time"] != began {
			t.Errorf("when it began: %v", down)
		}
		if outage, ok := up["outage"].(float64); up["level"] != "INFO" || up["msg"] != "holdfast: host recovered; not throttled any more" || up["host"] != "api.test" || up["since"] != began || !ok || time.Duration(outage) < 59*time.Minute {
			t.Errorf("when it was over: %v", up)
		}
	})
}

// TestHooksAreAdded: those of several options are all called, in order.
func TestHooksAreAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		hooks := func(name string) httpclient.Option {
			add := func(what string) { order = append(order, name+" "+what) }
			return httpclient.WithHooks(httpclient.Hooks{
				Attempt:        func(context.Context, httpclient.AttemptInfo) { add("attempt") },
				Wait:           func(context.Context, httpclient.WaitInfo) { add("wait") },
				Cooldown:       func(context.Context, httpclient.CooldownInfo) { add("cooldown") },
				GiveUp:         func(context.Context, httpclient.GiveUpInfo) { add("gives up") },
				ThrottleChange: func(context.Context, retry.ThrottleChange) { add("throttle") },
			})
		}
		rt := newTransport(t, scripted(status(503, "Retry-After", "1"), status(500)), hooks("a"), httpclient.WithHooks(httpclient.Hooks{}), hooks("b"),
			httpclient.WithAttempts(2), strict(2))
		respondsWith(t, rt, get(t, api), 500)
		want := "a attempt, b attempt, a cooldown, b cooldown, a wait, b wait, a throttle, b throttle, a attempt, b attempt, a gives up, b gives up"
		if got := strings.Join(order, ", "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	for r := retry.Throttled; r <= retry.ReplayFailed; r++ {
		if s := r.String(); seen[s] || strings.HasPrefix(s, "unknown") {
			t.Errorf("reason %d is %q", r, s)
		}
		seen[r.String()] = true
	}
	if s := retry.Reason(99).String(); s != "unknown reason 99" {
		t.Error(s)
	}
	for w := retry.WaitServer; w <= retry.WaitAdaptive; w++ {
		if s := w.String(); seen[s] || strings.HasPrefix(s, "unknown") {
			t.Errorf("wait reason %d is %q", w, s)
		}
		seen[w.String()] = true
	}
	e := &httpclient.Error{Reason: retry.CoolingDown, Key: "api.test", Wait: 3 * time.Second, Err: limiter.ErrClosed}
	if got, want := e.Error(), `httpclient: "api.test": cooling down, retry in 3s: limiter: closed`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
