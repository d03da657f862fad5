package operator_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

func TestMain(m *testing.M) {
	logging.Disable()
	redistest.VerifyNoLeaks(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// all are limits of the seven algorithms, of which nothing drains in a test.
var all = []limiter.Limit{
	limiter.FixedWindow(limiter.Per(10, 366*24*time.Hour)), limiter.SlidingWindowLog(limiter.PerHour(10)),
	limiter.SlidingWindowCounter(limiter.Per(10, 30*24*time.Hour)), limiter.TokenBucket(limiter.PerHour(2), 10),
	limiter.LeakyBucket(limiter.PerHour(2), 10), limiter.LeakyBucketShaping(limiter.PerHour(2), 10), limiter.GCRA(limiter.PerHour(2), 10),
}

func newOperator(t *testing.T, rdb redis.UniversalClient) *operator.Operator {
	t.Helper()
	o, err := operator.New(rdb, "holdfast")
	must(t, err)
	return o
}

func newLimiter(t *testing.T, rdb redis.UniversalClient, l limiter.Limit, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	opts = append([]limiter.Option{
		limiter.WithBudget(3 * time.Second), limiter.WithLogger(slog.New(slog.DiscardHandler)), limiter.WithoutDenialCache(),
	}, opts...)
	lim, err := limiter.New(rdb, l, opts...)
	must(t, err)
	t.Cleanup(func() { must(t, lim.Close()) })
	return lim
}

func use(t *testing.T, lim *limiter.Limiter, key string, n int) {
	t.Helper()
	if res, err := lim.AllowN(t.Context(), key, n); err != nil || !res.Allowed || res.Source == limiter.SourceLocal {
		t.Fatalf("%+v, %v", res, err)
	}
}

// inspect returns the states of a key.
func inspect(t *testing.T, o *operator.Operator, key string, q operator.Question) []operator.State {
	t.Helper()
	k, err := o.Inspect(t.Context(), key, q)
	must(t, err)
	return k.Limits
}
