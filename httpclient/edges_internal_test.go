package httpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// base is a transport that a function is.
type base func(*http.Request) (*http.Response, error)

func (f base) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(r *http.Request, status int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("")), Request: r}
}

func made(t *testing.T, f base, opts ...Option) *Transport {
	t.Helper()
	tr, err := New(f, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func asked(t *testing.T, ctx context.Context, path string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBrokenUploadSaysNothingOfTheHost.
func TestBrokenUploadSaysNothingOfTheHost(t *testing.T) {
	u := new(upload)
	u.failed.Store(true)
	if got := evidenceOfStatus(500, u); got != 0 {
		t.Errorf("%v", got)
	}
	if _, u := watched(&http.Request{ContentLength: 1}); !u.broken() {
		t.Error("a length without a body")
	}
	r, u := watched(&http.Request{Body: io.NopCloser(io.MultiReader()), GetBody: func() (io.ReadCloser, error) { return nil, errors.New("gone") }})
	if _, err := r.GetBody(); err == nil || !u.broken() {
		t.Errorf("a body that is not had again: %v", err)
	}
}

// TestDiscoveryIsNamed where what is wrong is about it.
func TestDiscoveryIsNamed(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	defer rdb.Close()
	_, err := New(nil, WithDiscovery(rdb, limiter.WithBudget(-1)))
	if err == nil || !errors.Is(err, limiter.ErrInvalidConfig) || !strings.HasPrefix(err.Error(), "httpclient: discovery: budget is -1ns: ") {
		t.Errorf("%v", err)
	}
	if _, err = New(nil, WithDiscovery(nil, limiter.WithBudget(time.Second))); err == nil || !strings.HasPrefix(err.Error(), "httpclient: discovery is options: ") {
		t.Errorf("%v", err)
	}
}

// TestWhatFailuresSay of quotas: what they name; nothing where they name none, so that the next request still waits a
// tenth of a second for what another says.
func TestWhatFailuresSay(t *testing.T) {
	const one, ten = `"a";q=1;w=60`, `"a";q=10;w=60`
	for name, c := range map[string]struct {
		status int
		header []string
		waits  time.Duration // of the next request
		atOnce int           // how many requests after that do not wait
	}{
		"500":             {500, nil, 100 * time.Millisecond, 0},
		"501":             {501, nil, 100 * time.Millisecond, 0},
		"200":             {200, nil, 0, 5},
		"500, of a quota": {500, []string{"RateLimit-Policy", one, "RateLimit", `"a";r=0;t=60`}, 60 * time.Second, 0},
		"503 of ten":      {503, []string{"RateLimit-Policy", ten, "RateLimit", `"a";r=9;t=60`, "Retry-After", "1"}, time.Second, 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			status, header := c.status, c.header
			tr := made(t, func(r *http.Request) (*http.Response, error) { return answer(r, status, header...), nil }, WithAttempts(1), WithDiscovery(nil), WithMaxWait(time.Hour))
			defer tr.Close()
			if _, err := tr.RoundTrip(asked(t, t.Context(), "/", nil)); err != nil {
				t.Fatal(err)
			}
			status, header = 200, nil
			start := time.Now()
			if _, err := tr.RoundTrip(asked(t, t.Context(), "/", nil)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took < c.waits || took > c.waits+c.waits/2+5*time.Second/4*min(1, c.waits/time.Second) {
				t.Errorf("%s: the next request took %v", name, took)
			}
			start = time.Now()
			for range c.atOnce {
				if _, err := tr.RoundTrip(asked(t, t.Context(), "/", nil)); err != nil {
					t.Fatal(err)
				}
			}
			if c.atOnce > 0 && time.Since(start) > 0 {
				t.Errorf("%s: others took %v", name, time.Since(start))
			}
		})
	}
}

// TestQuotasOfARoute stop its requests, and no others.
func TestQuotasOfARoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := made(t, func(r *http.Request) (*http.Response, error) {
			return answer(r, 200, "X-RateLimit-Limit-Requests", "1", "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "60s"), nil
		}, WithAttempts(1), WithDiscovery(nil), WithMaxWait(time.Hour))
		defer tr.Close()
		start := time.Now()
		for i, path := range []string{"/a", "/b", "/a"} {
			if _, err := tr.RoundTrip(asked(t, t.Context(), path, nil)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); (took >= 60*time.Second) != (i == 2) {
				t.Errorf("%s after %v", path, took)
			}
		}
	})
}

// TestCancelledBaseIsNotRepeated: that the base was cancelled by someone else is final, and fills no budget.
func TestCancelledBaseIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget, err := retry.NewBudget(retry.BudgetSettings{Floor: -1})
		if err != nil {
			t.Fatal(err)
		}
		sent, fails := 0, context.Canceled
		tr := made(t, func(*http.Request) (*http.Response, error) { sent++; return nil, fails }, WithBudget(budget), WithoutThrottle())
		for range 20 {
			_, _ = tr.RoundTrip(asked(t, t.Context(), "/", nil))
		}
		if sent != 20 {
			t.Errorf("%d attempts of 20 requests", sent)
		}
		fails = io.ErrUnexpectedEOF
		if _, _ = tr.RoundTrip(asked(t, t.Context(), "/", nil)); sent != 21 {
			t.Errorf("%d attempts more, without a budget", sent-20)
		}
	})
}

// TestCooldownHook: once for what others have heard, too, and with the key of the scope.
func TestCooldownHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []CooldownInfo
		tr := made(t, func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return answer(r, 429, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "10", "X-RateLimit-Resource", "search"), nil
		}, WithAttempts(1), WithHooks(Hooks{Cooldown: func(_ context.Context, i CooldownInfo) { heard = append(heard, i) }}))
		done := make(chan bool)
		for range 2 {
			go func() {
				_, _ = tr.RoundTrip(asked(t, t.Context(), "/", nil))
				done <- true
			}()
		}
		<-done
		<-done
		if len(heard) != 1 || heard[0].Key == "api.test" || !strings.Contains(heard[0].Key, "search") {
			t.Errorf("%+v", heard)
		}
	})
}

// TestOnlyRejectionsSlow: adaptive pacing knows of a 429 that the classifier leaves as one.
func TestOnlyRejectionsSlow(t *testing.T) {
	for status, final := range map[int]bool{500: false, 429: true} {
		synctest.Test(t, func(t *testing.T) {
			opts := []Option{WithAttempts(1), WithAdaptive(), WithoutThrottle()}
			if final {
				opts = append(opts, WithClassifier(func(*http.Response, error) retry.Verdict { return retry.Final }))
			}
			tr := made(t, func(r *http.Request) (*http.Response, error) { return answer(r, status), nil }, opts...)
			start := time.Now()
			for range 20 {
				if _, err := tr.RoundTrip(asked(t, t.Context(), "/", nil)); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(start); took > 0 {
				t.Errorf("%d: 20 requests took %v", status, took)
			}
		})
	}
}

// TestLastBodyIsClosed when the caller leaves during a wait.
func TestLastBodyIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &onceBody{Reader: strings.NewReader(strings.Repeat("x", 1<<20))} // too large to be read for the connection's sake
		tr := made(t, func(r *http.Request) (*http.Response, error) {
			resp := answer(r, 503, "Retry-After", "10")
			resp.Body, resp.ContentLength = body, -1
			return resp, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if resp, err := tr.RoundTrip(asked(t, ctx, "/", nil)); !errors.Is(err, context.Canceled) || resp != nil || body.closes == 0 {
			t.Errorf("%v, %v, closed %d times", resp, err, body.closes)
		}
	})
}

// TestWaitOfResponses: none where the transport gave up without one; of a reset by what it must mean.
func TestWaitOfResponses(t *testing.T) {
	r := asked(t, t.Context(), "/", nil)
	if d, ok := Wait(gaveUp(answer(r, 500), r, &Error{Reason: retry.NotIdempotent})); ok {
		t.Errorf("%v", d)
	}
	at := time.Now().Add(30 * time.Second).Unix()
	for _, reset := range []string{"30", fmt.Sprint(at)} {
		if d, ok := Wait(answer(r, 429, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset)); !ok || d < 20*time.Second || d > 31*time.Second {
			t.Errorf("%s: %v, %v", reset, d, ok)
		}
	}
}

// TestRepeatedKeysAreBounded: the last ones are known, and no more.
func TestRepeatedKeysAreBounded(t *testing.T) {
	r := newRepeated()
	before := func(i int) bool { return r.before(http.Header{"Idempotency-Key": {fmt.Sprint(i)}}) }
	for i := range 2 * maxRepeated {
		if before(i) {
			t.Fatalf("%d is known", i)
		}
	}
	if len(r.at) != maxRepeated || !before(maxRepeated) || before(maxRepeated-1) {
		t.Errorf("%d are kept", len(r.at))
	}
}

// TestPeekOfABrokenBody ends with its error, and no byte more.
func TestPeekOfABrokenBody(t *testing.T) {
	broken := io.NopCloser(io.MultiReader(strings.NewReader("ab"), errReader{}))
	resp := &http.Response{Body: broken, ContentLength: -1}
	if _, whole := peek(resp, 10); whole {
		t.Error("it is whole")
	}
	b := make([]byte, 10)
	if n, err := resp.Body.Read(b); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := resp.Body.Read(b); n != 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d, %v", n, err)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestBodiesAreBuffered only where they may be sent again.
func TestBodiesAreBuffered(t *testing.T) {
	for name, c := range map[string]struct {
		attempts int
		header   string
		buffered bool
	}{"one attempt": {1, "", false}, "two": {2, "", true}, "the caller repeats": {3, "attempt=1; max=3", false}} {
		var got *http.Request
		tr := made(t, func(r *http.Request) (*http.Response, error) { got = r; return answer(r, 200), nil }, WithAttempts(c.attempts), WithBodyBuffer(100))
		r := asked(t, t.Context(), "/", io.MultiReader(strings.NewReader("body")))
		if c.header != "" {
			r.Header.Set("Amz-Sdk-Request", c.header)
		}
		if _, err := tr.RoundTrip(r); err != nil || (got.ContentLength == 4) != c.buffered {
			t.Errorf("%s: %v, a length of %d", name, err, got.ContentLength)
		}
	}
	whole := asked(t, t.Context(), "/", strings.NewReader("body"))
	if r, err := buffered(whole, 100); err != nil || r != whole {
		t.Errorf("what can be sent again is buffered: %v", err)
	}
}

// TestFullTablesOfRoutes make room for what comes.
func TestFullTablesOfRoutes(t *testing.T) {
	rs := newRoutes()
	for i := range maxRoutes + 1 {
		r := asked(t, t.Context(), fmt.Sprint("/a", i), nil)
		if rs.learn("h", r, []string{"q"}); len(rs.scopesOf("h", "k", r)) != 1 {
			t.Fatalf("route %d is not remembered", i)
		}
	}
	rs = newRoutes()
	r := asked(t, t.Context(), "/", nil)
	for i := range maxFamilies + 1 {
		if rs.learn(fmt.Sprint(i), r, []string{"q"}); len(rs.scopesOf(fmt.Sprint(i), "k", r)) != 1 {
			t.Fatalf("host %d is not remembered", i)
		}
	}
	if got := namesOf(&http.Response{}, retry.Answer{Scope: "q"}); len(got) != 1 || got[0] != "q" {
		t.Errorf("%v", got)
	}
}

// TestHeadersThatComeLate: of a base that ends with the attempt, and of one that does not.
func TestHeadersThatComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := asked(t, t.Context(), "/", nil)
		late := func(resp *http.Response, err error) bool {
			h, ok := errors.AsType[*headerTimeout](err)
			return resp == nil && ok && h.after == time.Second
		}
		ends := func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }
		if resp, err := sendWithin(ends, r, time.Second); !late(resp, err) {
			t.Errorf("%v, %v", resp, err)
		}
		for status, want := range map[int]bool{200: true, 101: false, 102: true} {
			body := &onceBody{Reader: strings.NewReader("")}
			stays := func(r *http.Request) (*http.Response, error) {
				time.Sleep(2 * time.Second)
				resp := answer(r, status)
				resp.Body = body
				return resp, nil
			}
			if resp, err := sendWithin(stays, r, time.Second); late(resp, err) != want || body.closes != map[bool]int{true: 1}[want] {
				t.Errorf("%d: %v, %v, closed %d times", status, resp, err, body.closes)
			}
		}
		empty := func(*http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return &http.Response{StatusCode: 200}, nil
		}
		if resp, err := sendWithin(empty, r, time.Second); !late(resp, err) {
			t.Errorf("%v, %v", resp, err)
		}
		if resp, err := sendWithin(empty, r, time.Minute); err != nil || resp.Body != nil || resp.Request != nil {
			t.Errorf("%v, %v", resp, err)
		}
		none := func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		}
		if resp, err := sendWithin(none, r, time.Minute); err != nil || resp.Body != http.NoBody {
			t.Errorf("%v, %v", resp, err)
		}
		if resp, err := sendWithin(func(*http.Request) (*http.Response, error) { return nil, nil }, r, time.Minute); resp != nil || err != nil {
			t.Errorf("%v, %v", resp, err)
		}
	})
}
