//go:build !race

package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

// discard is a ResponseWriter whose header is new for each request, as a server's is.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// TestAllocations: what the middleware adds to a bare handler, with a local limiter,
// in memory from the heap. The race detector allocates on its own; there is a run
// without it.
func TestAllocations(t *testing.T) {
	bare := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.1:1234"
	w := new(discard)
	count := func(h http.Handler) float64 {
		return testing.AllocsPerRun(1000, func() {
			w.header = make(http.Header)
			h.ServeHTTP(w, r)
		})
	}
	mw, err := middleware.New(local(t, limiter.GCRA(limiter.PerHour(1_000_000), 1_000_000)), middleware.RemoteIP())
	if err != nil {
		t.Fatal(err)
	}
	if adds := count(mw(bare)) - count(bare); adds > 6 {
		t.Errorf("%v allocations more than a bare handler, want at most 6", adds)
	} else {
		t.Logf("%v allocations more than a bare handler", adds)
	}
}

func BenchmarkMiddleware(b *testing.B) {
	bare := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	mw, err := middleware.New(local(b, limiter.GCRA(limiter.PerSecond(1_000_000), 1_000_000_000)), middleware.RemoteIP())
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.1:1234"
	for name, h := range map[string]http.Handler{"bare": bare, "limited": mw(bare)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			w := new(discard)
			for b.Loop() {
				w.header = make(http.Header)
				h.ServeHTTP(w, r)
			}
		})
	}
}
