package middleware_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/semaphore"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })

func local(t testing.TB, limit limiter.Limit, opts ...limiter.LocalOption) *limiter.Limiter {
	t.Helper()
	lim, err := limiter.NewLocal(limit, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

func wrap(t testing.TB, allower limiter.Allower, key middleware.Key, opts ...middleware.Option) http.Handler {
	t.Helper()
	mw, err := middleware.New(allower, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return mw(ok)
}

func get(h http.Handler, change ...func(*http.Request)) *http.Response {
	r := httptest.NewRequest("GET", "/", nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// item is what a structured field says of a policy.
func items(t *testing.T, resp *http.Response, field string) map[string]map[string]int64 {
	t.Helper()
	list, err := httpsfv.UnmarshalList(resp.Header.Values(field))
	if err != nil {
		t.Fatalf("%s is %q: %v", field, resp.Header.Values(field), err)
	}
	all := map[string]map[string]int64{}
	for _, member := range list {
		item := member.(httpsfv.Item)
		params := map[string]int64{}
		for _, name := range item.Params.Names() {
			v, _ := item.Params.Get(name)
			params[name] = v.(int64)
		}
		all[item.Value.(string)] = params
	}
	return all
}

// allowing says that so much remains of a limit.
type allowing struct {
	remaining int
	limit     limiter.Limit
}

func (a allowing) AllowN(context.Context, string, int) (limiter.Result, error) {
	return limiter.Result{Allowed: true, Remaining: a.remaining, Limit: a.limit}, nil
}

// TestOptions: what each of them changes.
func TestOptions(t *testing.T) {
	one := limiter.FixedWindow(limiter.Per(1, 300*time.Hour))
	statuses := func(h http.Handler, n int, change ...func(*http.Request)) (all []int) {
		for range n {
			all = append(all, get(h, change...).StatusCode)
		}
		return all
	}
	expect := func(what string, got []int, want ...int) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	h := wrap(t, local(t, one), middleware.Header("X-User"), middleware.WithSkip(func(r *http.Request) bool { return r.URL.Path == "/" && r.Header.Get("Health") != "" }))
	expect("skipped", statuses(h, 3, with("Health", "1")), 200, 200, 200)
	expect("not skipped", statuses(h, 2, with("X-User", "a")), 200, 429)
	expect("another key", statuses(h, 2, with("X-User", "b")), 200, 429)
	expect("no key", statuses(h, 2), 400, 400)

	h = wrap(t, local(t, one), middleware.Header("X-User"), middleware.WithMissingKey(middleware.MissingShared))
	expect("no key, shared", statuses(h, 2), 200, 429)
	expect("a key beside the shared one", statuses(h, 1, with("X-User", "a")), 200)

	h = wrap(t, local(t, limiter.FixedWindow(limiter.Per(10, 300*time.Hour))), middleware.Everyone(), middleware.WithCost(func(r *http.Request) int {
		n, _ := strconv.Atoi(r.Header.Get("Cost"))
		return n
	}))
	expect("6 and 6", append(statuses(h, 2, with("Cost", "6")), statuses(h, 1, with("Cost", "4"))...), 200, 429, 200)
	expect("costs that can't be", append(statuses(h, 1, with("Cost", "-1")), statuses(h, 1, with("Cost", "11"))...), 400, 400)
	expect("a cost of 0", statuses(h, 1, with("Cost", "0")), 200)
	blocked := local(t, limiter.FixedWindow(limiter.Per(10, 300*time.Hour)))
	if err := blocked.Block(t.Context(), "everyone", time.Hour); err != nil {
		t.Fatal(err)
	}
	free := wrap(t, blocked, middleware.Everyone(), middleware.WithCost(func(*http.Request) int { return 0 }), middleware.WithHook(func(_ context.Context, d middleware.Decision) {
		if d.Policy != "" || d.Status != 0 || d.Shadow {
			t.Errorf("served, and told %+v", d)
		}
	}))
	expect("a cost of 0 of who is blocked", statuses(free, 1), 200)

	tiers := map[string]limiter.Limit{"pro": limiter.FixedWindow(limiter.Per(3, 300*time.Hour))}
	h = wrap(t, local(t, one), middleware.Header("X-User"), middleware.WithTier(func(r *http.Request) limiter.Limit { return tiers[r.Header.Get("Plan")] }))
	expect("pro", statuses(h, 4, with("X-User", "p"), with("Plan", "pro")), 200, 200, 200, 429)
	expect("unknown tier", statuses(h, 2, with("X-User", "u"), with("Plan", "gold")), 200, 429)

	var shadows, refused, first int
	h = wrap(t, local(t, one), middleware.Everyone(), middleware.WithShadow(), middleware.WithHook(nil), middleware.WithHook(func(context.Context, middleware.Decision) { first++ }), middleware.WithHook(func(_ context.Context, d middleware.Decision) {
		if d.Shadow {
			shadows++
		}
		if d.Status != 0 {
			refused++
		}
	}))
	expect("in the shadow", statuses(h, 3), 200, 200, 200)
	if resp := get(h); shadows != 3 || refused != 3 || first != 4 || resp.Header.Get("RateLimit") != "" {
		t.Errorf("%d of %d in the shadow, %v", shadows, refused, resp.Header)
	}

	h = wrap(t, local(t, one), middleware.Everyone(), middleware.WithHeaders(middleware.XRateLimit), middleware.WithResponder(func(w http.ResponseWriter, _ *http.Request, d middleware.Decision) {
		w.WriteHeader(d.Status + 20)
	}))
	expect("own responder", statuses(h, 2), 200, 449)
	if resp := get(h); resp.Header.Get("RateLimit") != "" || resp.Header.Get("Retry-After") != "" || resp.Header.Get("X-RateLimit-Limit") != "1" {
		t.Errorf("only the older headers: %v", resp.Header)
	}

	h = wrap(t, local(t, one), middleware.Everyone(), middleware.WithHeaders(middleware.RateLimitDraft6))
	if resp := get(h); resp.Header.Get("RateLimit-Limit") != "1" || resp.Header.Get("RateLimit-Remaining") != "0" || resp.Header.Get("RateLimit-Reset") == "" || resp.Header.Get("X-RateLimit-Limit") != "" {
		t.Errorf("only those of draft 06: %v", resp.Header)
	}
	h = wrap(t, local(t, one), middleware.Everyone())
	if resp := get(h); resp.Header.Get("RateLimit-Limit") != "" {
		t.Errorf("those of draft 06 are sent by default: %v", resp.Header)
	}
}

// TestUnauthorized: a 401 has a challenge, as RFC 9110 section 15.5.2 demands: that of the
// key, or one's own.
func TestUnauthorized(t *testing.T) {
	unauthorized := middleware.WithMissingKey(middleware.MissingUnauthorized)
	for want, h := range map[string]http.Handler{
		`Bearer realm="default"`:     wrap(t, failing{}, middleware.APIKey(), unauthorized),
		`Basic realm="the \"plan\""`: wrap(t, failing{}, middleware.BasicAuthUser(), unauthorized, middleware.WithPolicy(`the "plan"`)),
		`Basic realm="joined"`:       wrap(t, failing{}, middleware.Join(middleware.RemoteIP(), middleware.BasicAuthUser(), middleware.APIKey()), unauthorized, middleware.WithPolicy("joined")),
		`ApiKey`:                     wrap(t, failing{}, middleware.Header("X-User"), unauthorized, middleware.WithChallenge("ApiKey")),
		`Bearer scope="things"`:      wrap(t, failing{}, middleware.APIKey(), unauthorized, middleware.WithChallenge(`Bearer scope="things"`)),
		`Own`: wrap(t, failing{}, middleware.Header("X-User"), unauthorized, middleware.WithChallenge("Own"), middleware.WithResponder(func(w http.ResponseWriter, _ *http.Request, d middleware.Decision) {
			w.WriteHeader(d.Status)
		})),
	} {
		if resp := get(h); resp.StatusCode != 401 || !slices.Equal(resp.Header["Www-Authenticate"], []string{want}) {
			t.Errorf("%d %q, want %q", resp.StatusCode, resp.Header["Www-Authenticate"], want)
		}
	}
	if resp := get(wrap(t, failing{}, middleware.APIKey(), middleware.WithChallenge("Bearer"))); resp.StatusCode != 400 || resp.Header["Www-Authenticate"] != nil {
		t.Errorf("%d with a challenge %q", resp.StatusCode, resp.Header["Www-Authenticate"])
	}
}

// TestMultiThatFails: an error of several limits is the request's, as that of one.
func TestMultiThatFails(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	lim, err := limiter.New(rdb, limiter.FixedWindow(limiter.PerHour(10)), limiter.WithFallback(fallback.Closed))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	m, err := limiter.NewMulti(limiter.Part{Name: "strict", Limiter: lim})
	if err != nil {
		t.Fatal(err)
	}
	var last middleware.Decision
	h := wrap(t, m, middleware.Header("X-User"), middleware.WithHook(func(_ context.Context, d middleware.Decision) { last = d }))
	if resp := get(h, with("X-User", "a")); resp.StatusCode != http.StatusServiceUnavailable || !errors.Is(last.Err, limiter.ErrUnavailable) {
		t.Errorf("%d, %+v", resp.StatusCode, last)
	}
}

// TestPermits: so many at a time, and the permit is released when the handler has returned,
// also when it panics.
func TestPermits(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	sem, err := semaphore.New(rdb, 2, limiter.WithBudget(5*time.Second), limiter.WithShare(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sem.Close() })
	mw, err := middleware.New(local(t, limiter.GCRA(limiter.PerHour(1000), 1000)), middleware.Everyone(), middleware.WithConcurrency(sem, "at a time"))
	if err != nil {
		t.Fatal(err)
	}
	inside, leave := make(chan bool, 10), make(chan bool)
	h := mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Panic") != "" {
			panic(http.ErrAbortHandler)
		}
		inside <- true
		<-leave
	}))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { get(h) })
		<-inside
	}
	resp := get(h)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "at a time") {
		t.Errorf("a third: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	close(leave)
	wg.Wait()
	for range 5 {
		func() {
			defer func() { _ = recover() }()
			get(h, with("Panic", "1"))
		}()
	}
	if n, err := sem.InFlight(t.Context(), "everyone"); n != 0 || err != nil {
		t.Errorf("%d in flight, %v", n, err)
	}
}

// failing is an Allower with an error.
type failing struct{ err error }

func (f failing) AllowN(context.Context, string, int) (limiter.Result, error) {
	return limiter.Result{RetryAfter: 1500 * time.Millisecond}, f.err
}

// TestErrors: none of them is the client's to see.
func TestErrors(t *testing.T) {
	secret := errors.New("password of the database")
	for want, h := range map[int]http.Handler{
		500: wrap(t, failing{secret}, middleware.Everyone()),
		503: wrap(t, failing{fmt.Errorf("%w: %w", limiter.ErrUnavailable, secret)}, middleware.Everyone()),
		400: wrap(t, failing{limiter.ErrCostExceedsLimit}, middleware.Everyone()),
	} {
		resp := get(h)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != want || strings.Contains(string(body), "password") || !json.Valid(body) {
			t.Errorf("%d %s, want %d", resp.StatusCode, body, want)
		}
	}
	h := wrap(t, failing{}, middleware.KeyFunc(func(*http.Request) (string, error) { return "", secret }))
	if resp := get(h); resp.StatusCode != 500 {
		t.Errorf("a key that fails: %d", resp.StatusCode)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	closed, err := limiter.New(rdb, limiter.GCRA(limiter.PerHour(1), 1), limiter.WithFallback(fallback.Closed))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closed.Close() })
	if resp := get(wrap(t, closed, middleware.Everyone())); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("fails closed: %d %v", resp.StatusCode, resp.Header)
	}
	multi, err := limiter.NewMulti(limiter.Part{Name: "a", Limiter: closed})
	if err != nil {
		t.Fatal(err)
	}
	if resp := get(wrap(t, multi, middleware.Everyone())); resp.StatusCode != 503 {
		t.Errorf("a Multi that fails closed: %d", resp.StatusCode)
	}
}

// TestResponseWriter: what it can do it can do behind the middleware.
func TestResponseWriter(t *testing.T) {
	mw, err := middleware.New(local(t, limiter.GCRA(limiter.PerHour(100), 100)), middleware.RemoteIP())
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "first")
			if err := errors.Join(c.Flush(), c.SetWriteDeadline(time.Now().Add(time.Minute))); err != nil {
				t.Error(err)
			}
			if _, ok := w.(io.ReaderFrom); !ok {
				t.Error("no io.ReaderFrom")
			}
			<-r.Context().Done()
			return
		}
		conn, rw, err := c.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello")
		_ = rw.Flush()
	})))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL+"/stream", nil)
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, first); err != nil || resp.Header.Get("RateLimit") == "" {
		t.Errorf("%q, %v, %v", first, err, resp.Header)
	}
	cancel()
	_ = resp.Body.Close()
	req, _ = http.NewRequest("GET", srv.URL+"/hijack", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "x")
	if resp, err = srv.Client().Do(req); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(resp.Body).ReadString('o'); resp.StatusCode != 101 || line != "hello" {
		t.Errorf("%d %q", resp.StatusCode, line)
	}
	_ = resp.Body.Close()
}

// TestOwnClientLearns: clients made of httpclient, in front of two servers that share a
// limit, keep to it by what the headers say: at most the first is refused.
func TestOwnClientLearns(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	var refused, served atomic.Int64
	var urls []string
	for range 2 {
		lim, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerSecond(20), 10), limiter.WithPrefix("api"), limiter.WithBudget(5*time.Second), limiter.WithShare(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lim.Close() })
		mw, err := middleware.New(lim, middleware.Header("X-Client"), middleware.WithHook(func(_ context.Context, d middleware.Decision) {
			if d.Status == 0 {
				served.Add(1)
			} else {
				refused.Add(1)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(mw(ok))
		t.Cleanup(srv.Close)
		urls = append(urls, srv.URL)
	}
	var wg sync.WaitGroup
	for c := range 4 {
		base := &http.Transport{}
		tr, err := httpclient.New(base, httpclient.WithKey(func(*http.Request) string { return "the api" }))
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: tr}
		wg.Go(func() {
			defer base.CloseIdleConnections()
			for i := range 25 {
				req, _ := http.NewRequest("GET", urls[i%2], nil)
				req.Header.Set("X-Client", fmt.Sprint("client ", c))
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("client %d, request %d: %d", c, i, resp.StatusCode)
				}
			}
		})
	}
	wg.Wait()
	if served.Load() != 100 || refused.Load() > 4 {
		t.Errorf("%d served, %d refused: more than the first of each client", served.Load(), refused.Load())
	}
}

// TestBadConfiguration: what is refused, by name.
func TestBadConfiguration(t *testing.T) {
	lim := local(t, limiter.GCRA(limiter.PerHour(1), 1))
	for want, make := range map[string]func() (func(http.Handler) http.Handler, error){
		"allower is nil": func() (func(http.Handler) http.Handler, error) { return middleware.New(nil, middleware.Everyone()) },
		"allower is": func() (func(http.Handler) http.Handler, error) {
			return middleware.New((*limiter.Limiter)(nil), middleware.Everyone())
		},
		"semaphore is nil: must not be a nil pointer": func() (func(http.Handler) http.Handler, error) {
			return middleware.New(lim, middleware.Everyone(), middleware.WithConcurrency((*semaphore.Semaphore)(nil), "at once"))
		},
		"key is the zero": func() (func(http.Handler) http.Handler, error) { return middleware.New(lim, middleware.Key{}) },
		"key is nil":      func() (func(http.Handler) http.Handler, error) { return middleware.New(lim, middleware.KeyFunc(nil)) },
		"header is":       func() (func(http.Handler) http.Handler, error) { return middleware.New(lim, middleware.Header("a b")) },
		"path value":      func() (func(http.Handler) http.Handler, error) { return middleware.New(lim, middleware.PathValue("")) },
		"trusted proxies": func() (func(http.Handler) http.Handler, error) {
			return middleware.New(lim, middleware.XForwardedFor())
		},
		"trusted proxy is 1: must be a valid prefix": func() (func(http.Handler) http.Handler, error) {
			return middleware.New(lim, middleware.XForwardedFor(proxies[0], netip.Prefix{}))
		},
		"trusted proxy is 0: must be a valid prefix, of at least 96 bits": func() (func(http.Handler) http.Handler, error) {
			return middleware.New(lim, middleware.Forwarded(netip.PrefixFrom(netip.MustParseAddr("::ffff:0:0"), 95)))
		},
		"keys is 0": func() (func(http.Handler) http.Handler, error) { return middleware.New(lim, middleware.Join()) },
		"challenge is empty: must not be empty where a missing key is a 401, as the key has no scheme of its own": func() (func(http.Handler) http.Handler, error) {
			return middleware.New(lim, middleware.APIKey("X-API-Key"), middleware.WithMissingKey(middleware.MissingUnauthorized))
		},
		"challenge is a\nb: must be printable ASCII": func() (func(http.Handler) http.Handler, error) {
			return middleware.New(lim, middleware.APIKey(), middleware.WithChallenge("a\nb"))
		},
		"policy is": func() (func(http.Handler) http.Handler, error) {
			return middleware.New(lim, middleware.Everyone(), middleware.WithPolicy("é"))
		},
		"headers is": func() (func(http.Handler) http.Handler, error) {
			return middleware.New(lim, middleware.Everyone(), middleware.WithHeaders(200))
		},
		"missing key": func() (func(http.Handler) http.Handler, error) {
			return middleware.New(lim, middleware.Everyone(), middleware.WithMissingKey(9))
		},
		"option is nil": func() (func(http.Handler) http.Handler, error) {
			return middleware.New(lim, middleware.Everyone(), nil)
		},
		"tier is": func() (func(http.Handler) http.Handler, error) {
			return middleware.New(failing{}, middleware.Everyone(), middleware.WithTier(func(*http.Request) limiter.Limit { return limiter.Limit{} }))
		},
	} {
		if _, err := make(); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.HasPrefix(err.Error(), "middleware: "+want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
