// An API with plans: each customer has the limit of a plan, which changes when the customer
// pays. The handler's clients read in the headers what is left and when to come back.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

var limitOf = map[string]limiter.Limit{
	"free": limiter.TokenBucket(limiter.PerHour(60), 2),
	"pro":  limiter.TokenBucket(limiter.PerHour(6000), 4),
}

func main() {
	opt, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()

	var customers sync.Map // customer to plan: your database, with a cache
	customers.Store("ann", "free")
	lim, err := limiter.New(rdb, limitOf["free"], limiter.WithPrefix("recipe:plans"),
		limiter.WithLimitFor(func(_ context.Context, customer string) limiter.Limit {
			plan, _ := customers.Load(customer)
			name, _ := plan.(string)
			return limitOf[name] // the zero Limit of unknown plans is the limiter's own
		}))
	if err != nil {
		log.Fatal(err)
	}
	defer lim.Close()
	// Authentication comes first and sets the user: a name that a client could choose is no key.
	limit, err := middleware.New(lim, middleware.BasicAuthUser(), middleware.WithPolicy("plan"))
	if err != nil {
		log.Fatal(err)
	}
	api := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "things") }))

	get := func() {
		req := httptest.NewRequest(http.MethodGet, "/things", nil)
		req.SetBasicAuth("ann", "checked before")
		rec := httptest.NewRecorder()
		api.ServeHTTP(rec, req)
		fmt.Println(rec.Code, "retry after:", cmp.Or(rec.Header().Get("Retry-After"), "-"), "policy:", rec.Header().Get("RateLimit-Policy"))
	}
	for range 3 {
		get()
	}
	customers.Store("ann", "pro") // what it has more is there at once
	get()
}

// Output:
// 200 retry after: - policy: "plan";q=2;w=120
// 200 retry after: - policy: "plan";q=2;w=120
// 429 retry after: 60 policy: "plan";q=2;w=120
// 200 retry after: - policy: "plan";q=4;w=3
