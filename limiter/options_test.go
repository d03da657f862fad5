package limiter_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/sampled"
	"github.com/holdfast-go/holdfast/semaphore"
)

// TestOptionsApply: what the compiler accepts is what an option means something for.
func TestOptionsApply(t *testing.T) {
	constructors := map[string]reflect.Type{
		"limiter.New": reflect.TypeFor[limiter.Option](), "limiter.NewLocal": reflect.TypeFor[limiter.LocalOption](),
		"semaphore.New": reflect.TypeFor[semaphore.Option](), "sampled.New": reflect.TypeFor[sampled.Option](),
	}
	const redis = "limiter.New semaphore.New sampled.New"
	for name, c := range map[string]struct {
		option any
		takes  string
	}{
		"WithPrefix":            {limiter.WithPrefix, redis},
		"WithBudget":            {limiter.WithBudget, redis},
		"WithFallback":          {limiter.WithFallback, redis},
		"WithShare":             {limiter.WithShare, redis},
		"WithEqualShare":        {limiter.WithEqualShare, "limiter.New"},
		"WithExpectedProcesses": {limiter.WithExpectedProcesses, redis},
		"WithPeerCount":         {limiter.WithPeerCount, redis},
		"WithProcess":           {limiter.WithProcess, redis},
		"WithFunctions":         {limiter.WithFunctions, redis},
		"WithBreaker":           {limiter.WithBreaker, redis},
		"WithLogger":            {limiter.WithLogger, redis},
		"WithHooks":             {limiter.WithHooks, redis + " limiter.NewLocal"},
		"WithCriticalHeadroom":  {limiter.WithCriticalHeadroom, "limiter.New limiter.NewLocal"},
		"WithMaxLocalKeys":      {limiter.WithMaxLocalKeys, "limiter.New limiter.NewLocal"},
		"WithLimitFor":          {limiter.WithLimitFor, "limiter.New limiter.NewLocal"},
		"WithoutDenialCache":    {limiter.WithoutDenialCache, "limiter.New"},
		"WithKeyShards":         {limiter.WithKeyShards, "limiter.New"},
		"WithLease":             {limiter.WithLease, "limiter.New"},
		"semaphore.WithTTL":     {semaphore.WithTTL, "semaphore.New"},
		"semaphore headroom":    {semaphore.WithCriticalHeadroom, "semaphore.New"},
		"semaphore permits":     {semaphore.WithPermitsFor, "semaphore.New"},
		"sampled local keys":    {sampled.WithMaxLocalKeys, "sampled.New"},
		"sampled.WithInterval":  {sampled.WithInterval, "sampled.New"},
		"sampled.WithTopKeys":   {sampled.WithTopKeys, "sampled.New"},
	} {
		want := map[string]bool{}
		for _, constructor := range strings.Fields(c.takes) {
			want[constructor] = true
		}
		for constructor, takes := range constructors {
			if got := reflect.TypeOf(c.option).Out(0).Implements(takes); got != want[constructor] {
				t.Errorf("%s is an option of %s: %v", name, constructor, got)
			}
		}
	}
	if _, err := limiter.NewLocal(good, nil); !errors.Is(err, limiter.ErrInvalidConfig) {
		t.Errorf("a nil option of NewLocal: %v", err)
	}
}
