package httpclient_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
)

// okay is a base that answers without allocating.
type okay struct{ resp *http.Response }

func (o okay) RoundTrip(r *http.Request) (*http.Response, error) {
	o.resp.Request = r
	return o.resp, nil
}

func okayBase() okay {
	return okay{&http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{
		"Content-Type": {"application/json"}, "Date": {"Mon, 02 Jan 2006 15:04:05 GMT"},
	}}}
}

// TestAllocations holds a 200 to what the transport may add to its base.
func TestAllocations(t *testing.T) {
	lim := newLocal(t, limiter.TokenBucket(limiter.PerSecond(1e5), 1e6))
	for name, opts := range map[string][]httpclient.Option{
		"plain":                 {httpclient.WithoutThrottle()},
		"throttle":              nil,
		"limiter and throttle":  {httpclient.WithLimiter(lim)},
		"adaptive and throttle": {httpclient.WithAdaptive()},
	} {
		rt := newTransport(t, okayBase(), opts...)
		r := get(t, "https://api.test/v1/things")
		n := testing.AllocsPerRun(1000, func() {
			if _, err := rt.RoundTrip(r); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s: %v allocations", name, n)
		if n > 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
		for kind, body := range map[string]io.Reader{
			"bytes": bytes.NewReader([]byte("{}")), "buffer": bytes.NewBufferString("{}"), "string": strings.NewReader("{}"),
		} {
			p, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.test/v1/things", body)
			if err != nil {
				t.Fatal(err)
			}
			n := testing.AllocsPerRun(1000, func() {
				if _, err := rt.RoundTrip(p); err != nil {
					t.Fatal(err)
				}
			})
			if n > 0 {
				t.Errorf("%s, with a body of %s: %v allocations, want none", name, kind, n)
			}
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for name, opts := range map[string][]httpclient.Option{
		"plain":                {httpclient.WithoutThrottle()},
		"throttle":             nil,
		"limiter and throttle": {httpclient.WithLimiter(newLocal(b, limiter.TokenBucket(limiter.PerSecond(1e6), 1e9)))},
	} {
		b.Run(name, func(b *testing.B) {
			rt := newTransport(b, okayBase(), opts...)
			r := get(b, "https://api.test/v1/things")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := rt.RoundTrip(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
