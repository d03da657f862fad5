package analytics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/limiter"
)

func ExampleNew() {
	top, err := analytics.New(100)
	if err != nil {
		fmt.Println(err)
		return
	}
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerHour(10), 2), limiter.WithHooks(top.Hooks()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	for range 5 {
		_, _ = lim.Allow(context.Background(), "customer:42")
	}
	_, _ = lim.Allow(context.Background(), "customer:7")
	for _, k := range top.Report(10).Keys {
		fmt.Println(k.Key, "was denied", k.Denied, "times")
	}
	// Output: customer:42 was denied 3 times
}

func ExampleHandler() {
	requests, err := analytics.New(100)
	if err != nil {
		fmt.Println(err)
		return
	}
	logins, err := analytics.New(100, analytics.WithPeriod(time.Hour), analytics.WithHashedKeys(nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := analytics.Handler(map[string]*analytics.Top{"requests": requests, "logins": logins})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/limits", h) // behind your own authentication

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/debug/limits?n=5", nil))
	var body struct {
		Limiters []struct {
			Name string `json:"name"`
			analytics.Report
		} `json:"limiters"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range body.Limiters {
		fmt.Println(l.Name, l.Denied, len(l.Keys))
	}
	// Output:
	// logins 0 0
	// requests 0 0
}

func ExampleTop_ServeHTTP() {
	top, err := analytics.New(100)
	if err != nil {
		fmt.Println(err)
		return
	}
	w := httptest.NewRecorder()
	top.ServeHTTP(w, httptest.NewRequest("GET", "/debug/limits?n=1000", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 400 {"type":"about:blank","title":"Bad Request","status":400,"detail":"n is \"1000\": must be a whole number from 1 to 100"}
}

func ExampleWithHashedKeys() {
	top, err := analytics.New(100, analytics.WithHashedKeys([]byte("one secret for the fleet")))
	if err != nil {
		fmt.Println(err)
		return
	}
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerHour(10), 1), limiter.WithHooks(top.Hooks()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	for range 2 {
		_, _ = lim.Allow(context.Background(), "192.0.2.1")
	}
	fmt.Println(len(top.Report(1).Keys[0].Key), top.Report(1).Keys[0].Key == "192.0.2.1")
	// Output: 32 false
}

func ExamplePublish() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	top, err := analytics.New(100)
	if err != nil {
		fmt.Println(err)
		return
	}
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerSecond(100), 20), limiter.WithHooks(top.Hooks()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lim.Close()
	// From now on `holdfast top` and `holdfast fleet` show this process.
	pub, err := analytics.Publish(rdb, map[string]analytics.Source{"api": {Top: top, Health: lim.Health, Limit: lim.Limit}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pub.Close()
}
