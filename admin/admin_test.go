package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/admin"
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
	if !json.Valid(w.Body.Bytes()) && w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed {
		t.Errorf("%s %s: %s", method, target, w.Body)
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
		{reads, "GET", "/nothing", "", 404, ""},
		{reads, "GET", "/block", "", 405, ""},
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
