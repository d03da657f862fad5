package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// A client that retries, and needs no options.
func ExampleNewClient() {
	tries := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if tries++; tries == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer api.Close()

	client, err := httpclient.NewClient()
	if err != nil {
		panic(err)
	}
	resp, err := client.Get(api.URL)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "at try", tries)
	// Output: 200 at try 2
}

// A transport that keeps to 10 requests per minute and tells how long to wait
// when a request cannot be sent in time.
func ExampleNew() {
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()

	limit, err := limiter.NewLocal(limiter.TokenBucket(limiter.PerMinute(10), 10))
	if err != nil {
		panic(err)
	}
	defer limit.Close()
	transport, err := httpclient.New(nil, httpclient.WithLimiter(limit))
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: transport, Timeout: time.Second}

	sent := 0
	for {
		resp, err := client.Get(api.URL)
		if e, ok := errors.AsType[*httpclient.Error](err); ok {
			fmt.Printf("sent %d, then %v, retry in %v\n", sent, e.Reason, e.Wait.Round(time.Second))
			return
		}
		if err != nil {
			panic(err)
		}
		resp.Body.Close()
		sent++
	}
	// Output: sent 10, then throttled, retry in 6s
}

func ExampleNew_invalid() {
	_, err := httpclient.New(nil, httpclient.WithAttempts(0))
	fmt.Println(err)
	// Output: httpclient: attempts is 0: must be from 1 to 100
}

// A response that comes although the server asked to come back: the wait was
// longer than the caller can afford.
func ExampleGaveUp() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer api.Close()

	client, err := httpclient.NewClient()
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	wait, _ := httpclient.Wait(resp)
	fmt.Println(resp.StatusCode, httpclient.GaveUp(resp).Reason, wait)
	// Output: 429 wait too long 30s
}

// A query that the server rejects with a 200.
func ExampleWithProvider() {
	tries := 0
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Shopify-API-Version", "2026-01")
		if tries++; tries == 1 {
			fmt.Fprint(w, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`)
			return
		}
		fmt.Fprint(w, `{"data":{"shop":{"name":"Snowdevil"}}}`)
	}))
	defer shop.Close()

	client, err := httpclient.NewClient(httpclient.WithProvider(retry.Shopify))
	if err != nil {
		panic(err)
	}
	resp, err := client.Post(shop.URL, "application/json", strings.NewReader(`{"query":"{shop{name}}"}`))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err, "at try", tries)
	// Output: {"data":{"shop":{"name":"Snowdevil"}}} <nil> at try 2
}

// A POST that the server can tell from a repetition, sent once more at most.
func ExampleWithCall() {
	tries := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tries++
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer api.Close()

	client, err := httpclient.NewClient()
	if err != nil {
		panic(err)
	}
	ctx := httpclient.WithCall(context.Background(), httpclient.Call{Attempts: 2, Idempotent: true})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL, nil)
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "after", tries, "tries")
	// Output: 502 after 2 tries
}
