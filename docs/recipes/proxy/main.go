// A reverse proxy: each client has a limit, and the host behind it is asked by a transport that
// pauses when the host says so. A client sees the headers of one limit: that with less left.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

func main() {
	opt, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "9") // the host's limit for the proxy
		w.Header().Set("X-RateLimit-Remaining", "7")
		fmt.Fprint(w, "from behind")
	}))
	defer host.Close()
	target, err := url.Parse(host.URL)
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerMinute(60), 2), limiter.WithPrefix("recipe:proxy"))
	if err != nil {
		log.Fatal(err)
	}
	defer lim.Close()
	limit, err := middleware.New(lim, middleware.RemoteIP())
	if err != nil {
		log.Fatal(err)
	}
	// One attempt: the client decides whether to repeat. The gate after a 429 stays.
	transport, err := httpclient.New(http.DefaultTransport, httpclient.WithAttempts(1), httpclient.WithMaxWait(0))
	if err != nil {
		log.Fatal(err)
	}
	proxy := middleware.ReverseProxy(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
	})
	front := httptest.NewServer(limit(proxy))
	defer front.Close()
	for range 3 {
		resp, err := http.Get(front.URL)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode, "limit:", resp.Header.Values("X-RateLimit-Limit"))
	}
}

// Output:
// 200 limit: [2]
// 200 limit: [2]
// 429 limit: [2]
