package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/admin"
	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

func TestMain(m *testing.M) {
	logging.Disable()
	redistest.VerifyNoLeaks(m)
}

// ask sends a request, and returns the status and the body, which must be JSON.
func ask(t *testing.T, h http.Handler, method, target, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if !json.Valid(w.Body.Bytes()) {
		t.Errorf("%s %s: %s", method, target, w.Body)
	}
	kind := "application/problem+json"
	if w.Code == http.StatusOK {
		kind = "application/json"
	}
	head := w.Header()
	if strings.HasPrefix(w.Body.String(), "{") && head.Get("Content-Type") != kind || head.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s %s: %v", method, target, head)
	}
	// A cache must not keep what is true for a moment.
	if head.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %s: %v", method, target, head)
	}
	if w.Code == http.StatusMethodNotAllowed && head.Get("Allow") == "" {
		t.Errorf("%s %s says nothing of what is allowed: %v", method, target, head)
	}
	return w.Code, w.Body.String()
}

// TestHandler: it answers what the command does, and changes nothing unless that is allowed.
func TestHandler(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t, redistest.Start(t))
	lim, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerMinute(1), 10), limiter.WithBudget(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	if _, err := lim.Allow(t.Context(), "k y"); err != nil {
		t.Fatal(err)
	}
	reads, err := admin.Handler(rdb)
	if err != nil {
		t.Fatal(err)
	}
	writes, err := admin.Handler(rdb, admin.WithWrites(), admin.WithKeySecret([]byte("secret")))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		h                    http.Handler
		method, target, body string
		status               int
		says                 string
	}{
		{reads, "GET", "/check", "", 200, `"findings":[`},
		{reads, "GET", "/fleet", "", 200, `"processes":[`},
		{reads, "GET", "/top?n=5&key=a", "", 200, `"limiters":{}`},
		{reads, "GET", "/inspect?key=k+y", "", 200, `"remaining":9`},
		{reads, "GET", "/inspect?key=k+y&limit=token+bucket+1/min+burst+5", "", 200, `"limit":"token bucket 1/1m burst 5"`},
		{reads, "GET", "/limits", "", 200, `[]`},
		{reads, "HEAD", "/limits", "", 200, ``},
		{reads, "POST", "/block", `{"key":"k y","for":"1h"}`, 403, "WithWrites"},
		{reads, "POST", "/limits", `{"table":"t","name":"gold","limit":"1/s"}`, 403, "WithWrites"},
		{reads, "GET", "/inspect", "", 400, "key is empty"},
		{reads, "GET", "/inspect?key=k&limit=lots", "", 400, "lots"},
		{reads, "GET", "/inspect?key=k&shards=65", "", 400, "shards"},
		{reads, "GET", "/top?n=x", "", 400, "whole number"},
		{reads, "GET", "/limits?table=a%20b", "", 400, "table"},
		{reads, "GET", "/inspect?key=" + strings.Repeat("x", 10_000), "", 400, "10004 bytes"},
		{reads, "GET", "/nothing", "", 404, `"title":"Not Found"`},
		{reads, "GET", "/block", "", 405, `"title":"Method Not Allowed"`},
		{writes, "POST", "/block", "", 415, "application/json"},
		{writes, "POST", "/block", `{"key":"k y","for":"soon"}`, 400, "soon"},
		{writes, "POST", "/block", `{"key":"k y","for":"-1s"}`, 400, "366 days"},
		{writes, "POST", "/block", `{"key":"k y","fro":"1h"}`, 400, "fro"},
		{writes, "POST", "/block", `{"key":"` + strings.Repeat("x", 20_000) + `","for":"1h"}`, 400, "cannot be read"},
		{writes, "POST", "/block", `{"key":"k y","for":"1h"}`, 200, `"until":`},
		{writes, "GET", "/inspect?key=k+y", "", 200, `"remaining":0`},
		{writes, "POST", "/unblock", `{"key":"k y"}`, 200, `"redis_keys":["holdfast:v2:tb:{k%20y}"]`},
		{writes, "POST", "/reset", `{"key":"k y"}`, 200, `"redis_keys":["holdfast:v2:tb:{k%20y}"]`},
		{writes, "POST", "/limits", `{"table":"t","name":"gold","limit":"1/s"}`, 200, `"gold":"token bucket 1/1s burst 1"`},
		{writes, "POST", "/limits", `{"table":"t","name":"gold","limit":"?"}`, 400, "?"},
		{writes, "POST", "/limits", `{"table":"t","name":"gold"}`, 200, `"version":2,"limits":{}`},
	} {
		status, body := ask(t, c.h, c.method, c.target, c.body)
		if status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %.60s %.60s: %d %s\nwant %d %s", c.method, c.target, c.body, status, body, c.status, c.says)
		}
	}
}

// reports is a hook in the place of a Redis in which one process has published what it denied: 30
// keys, which it shows by their hashes.
type reports struct{ secret []byte }

func (p reports) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p reports) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (p reports) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		switch cmd := cmd.(type) {
		case *redis.TimeCmd:
			cmd.SetVal(time.Now())
		case *redis.StringSliceCmd: // of those that publish
			cmd.SetVal([]string{"p"})
		case *redis.SliceCmd: // what they publish
			denied := &analytics.Denials{}
			for i := range 30 {
				denied.Keys = append(denied.Keys, analytics.Key{Key: analytics.ShownKey(fmt.Sprint("key", i), p.secret), Denied: int64(100 - i)})
			}
			text, err := json.Marshal(analytics.ProcessReport{Process: "p", Limiters: []analytics.LimiterReport{{Name: "l", Denials: denied}}})
			cmd.SetVal([]any{fmt.Sprint(time.Now().UnixMicro(), " ", string(text))})
			return err
		default:
			return fmt.Errorf("unexpected: %v", cmd)
		}
		return nil
	}
}

// TestTop: how many keys are shown, and that a key is found by its hash.
func TestTop(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
	defer rdb.Close()
	secret := []byte("secret")
	rdb.AddHook(reports{secret})
	plain, err := admin.Handler(rdb)
	if err != nil {
		t.Fatal(err)
	}
	knows, err := admin.Handler(rdb, admin.WithKeySecret(secret))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		h      http.Handler
		target string
		keys   int
	}{{plain, "/top", 20}, {plain, "/top?n=25", 25}, {plain, "/top?n=0", 0}, {plain, "/top?key=key7", 0}, {knows, "/top?key=key7&key=key9", 2}} {
		status, body := ask(t, c.h, "GET", c.target, "")
		var top struct{ Limiters map[string]analytics.Report }
		if err := json.Unmarshal([]byte(body), &top); err != nil || status != http.StatusOK || len(top.Limiters["l"].Keys) != c.keys {
			t.Errorf("%s: %d %.300s, %v, want %d keys", c.target, status, body, err, c.keys)
		}
	}
}

// TestOtherBodiesAreRejected: a page of another site can send a body, but none of this type.
func TestOtherBodiesAreRejected(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	defer rdb.Close()
	h, err := admin.Handler(rdb, admin.WithWrites())
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]int{
		"": 415, "text/plain": 415, "application/json; charset": 415, "application/json": 502, "application/json; charset=utf-8": 502,
	} {
		r := httptest.NewRequest("POST", "/reset", strings.NewReader(`{"key":"k"}`))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%q: %d %s, want %d", kind, w.Code, w.Body, want)
		}
	}
}

// asked is a hook that notes the context and the commands, and answers nothing.
type asked struct {
	ctx  context.Context
	left time.Duration
}

func (a *asked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *asked) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, _ redis.Cmder) error { return a.note(ctx) }
}

func (a *asked) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, _ []redis.Cmder) error { return a.note(ctx) }
}

func (a *asked) note(ctx context.Context) error {
	end, _ := ctx.Deadline()
	a.ctx, a.left = ctx, time.Until(end)
	return errors.New("no answer")
}

// TestRequestsEnd: Redis has 10 s for a request, and nothing of one lives longer than its answer.
func TestRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2, MaxRetries: -1})
		defer rdb.Close()
		redis := new(asked)
		rdb.AddHook(redis)
		h, err := admin.Handler(rdb)
		if err != nil {
			t.Fatal(err)
		}
		if status, body := ask(t, h, "GET", "/limits?table=t", ""); status != http.StatusBadGateway || !strings.Contains(body, "no answer") {
			t.Errorf("%d %s", status, body)
		}
		if redis.left != 10*time.Second || redis.ctx.Err() == nil {
			t.Errorf("%v for Redis, and after the answer %v", redis.left, redis.ctx.Err())
		}
	})
}

// TestWithoutRedis: each request is answered, and says that Redis is to blame.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	defer rdb.Close()
	h, err := admin.Handler(rdb)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/check", "/fleet", "/top", "/inspect?key=k", "/limits"} {
		if status, body := ask(t, h, "GET", path, ""); status != http.StatusBadGateway {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	changes, err := admin.Handler(rdb, admin.WithWrites())
	if err != nil {
		t.Fatal(err)
	}
	// What can be told without Redis is, and what is at its bound is asked for.
	query := func(n int) string { return "/inspect?key=k&x=" + strings.Repeat("x", n-len("key=k&x=")) }
	long := func(n int) string { // of n bytes, all of which must be read
		const begins, ends = `{"key":"k","table":"t","name":"a",`, `"limit":"1/s"}`
		return begins + strings.Repeat(" ", n-len(begins+ends)) + ends
	}
	for _, c := range []struct {
		h                    http.Handler
		method, target, body string
		status               int
		says                 string
	}{
		{h, "GET", "/top?n=0", "", 502, ""},
		{h, "GET", "/top?n=1000", "", 502, ""},
		{h, "GET", "/top?n=1001", "", 400, "from 0 to 1000"},
		{h, "GET", "/top?n=-1", "", 400, "from 0 to 1000"},
		{h, "GET", "/top?n=x", "", 400, "whole number"},
		{h, "GET", "/inspect?key=k&shards=64", "", 502, ""},
		{h, "GET", "/inspect?key=k&shards=65", "", 400, "from 0 to 64"},
		{h, "GET", "/inspect?key=k&limit=10/s", "", 502, ""},
		{h, "GET", "/inspect?key=k&limit=lots", "", 400, "lots"},
		{h, "GET", "/inspect", "", 400, "key is empty"},
		{h, "GET", query(8 << 10), "", 502, ""},
		{h, "GET", query(8<<10 + 1), "", 400, "8193 bytes: must be at most 8192"},
		{h, "GET", "/limits?table=a%20b", "", 400, "table"},
		{h, "POST", "/reset", `{"key":"k"}`, 403, "WithWrites"},
		{changes, "POST", "/block", "", 415, "application/json"},
		{changes, "POST", "/block", `{"key":"k","for":"1h"}`, 502, ""},
		{changes, "POST", "/block", `{"key":"k","for":"soon"}`, 400, "soon"},
		{changes, "POST", "/block", `{"key":"k","for":"-1s"}`, 400, "366 days"},
		{changes, "POST", "/block", `{"key":"k","fro":"1h"}`, 400, "fro"},
		{changes, "POST", "/unblock", `{"key":"k"}`, 502, ""},
		{changes, "POST", "/reset", `{"key":"k"}`, 502, ""},
		{changes, "POST", "/limits", `{"table":"t","name":"a","limit":"1/s"}`, 502, ""},
		{changes, "POST", "/limits", `{"table":"t","name":"a"}`, 502, ""},
		{changes, "POST", "/limits", `{"table":"t","name":"a","limit":"?"}`, 400, "?"},
		{changes, "POST", "/limits", `{"table":"t","name":"a b","limit":"1/s"}`, 400, "name"},
		{changes, "POST", "/limits", long(16 << 10), 502, ""},
		{changes, "POST", "/limits", long(16<<10 + 1), 400, "cannot be read"},
	} {
		status, body := ask(t, c.h, c.method, c.target, c.body)
		if status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %.60s %.60s: %d %.300s\nwant %d %s", c.method, c.target, c.body, status, body, c.status, c.says)
		}
	}
	for i, opts := range [][]admin.Option{{nil}, {admin.WithPrefix("{}")}} {
		if _, err := admin.Handler(rdb, opts...); !errors.Is(err, limiter.ErrInvalidConfig) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, err := admin.Handler(nil); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Error(err)
	}
}

func ExampleHandler() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	h, err := admin.Handler(rdb) // reads only
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/holdfast/", http.StripPrefix("/holdfast", h)) // behind your own authentication
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/holdfast/reset", strings.NewReader(`{"key":"customer:42"}`)))
	fmt.Println(w.Code)
	// Output: 403
}
