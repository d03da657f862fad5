package httpclient_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
)

// A client that learns a limit of two requests a minute from the first response: the third
// request is not sent.
func ExampleWithDiscovery() {
	sent := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sent++
		w.Header().Set("RateLimit-Policy", `"default";q=2;w=60`)
	}))
	defer api.Close()

	// With a Redis client in place of nil, all processes learn it.
	transport, err := httpclient.New(nil, httpclient.WithDiscovery(nil), httpclient.WithMaxWait(time.Second))
	if err != nil {
		panic(err)
	}
	defer transport.Close()
	client := &http.Client{Transport: transport}
	for range 4 {
		resp, err := client.Get(api.URL)
		if err != nil {
			continue // an *httpclient.Error: throttled, and for how long
		}
		resp.Body.Close()
	}
	fmt.Println(sent, "requests were sent")
	// Output: 2 requests were sent
}

// A key for each model, for APIs that have a quota for each: which model it is stands in the
// body of the request, of which GetBody returns a copy.
func ExampleWithKey() {
	perModel := func(r *http.Request) string {
		key := r.URL.Host
		if r.GetBody == nil || r.ContentLength > 1<<20 {
			return key
		}
		body, err := r.GetBody()
		if err != nil {
			return key
		}
		defer body.Close()
		var said struct{ Model string }
		if json.NewDecoder(io.LimitReader(body, 1<<20)).Decode(&said) != nil || said.Model == "" {
			return key
		}
		return key + " " + said.Model
	}
	client, err := httpclient.NewClient(httpclient.WithKey(perModel), httpclient.WithDiscovery(nil))
	if err != nil {
		panic(err)
	}
	fmt.Println(client.Transport != nil)
	// Output: true
}
