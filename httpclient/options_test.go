package httpclient_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

func TestOptionsAreValidated(t *testing.T) {
	for field, o := range map[string]httpclient.Option{
		"attempts":        httpclient.WithAttempts(0),
		"attempts is 101": httpclient.WithAttempts(101),
		"max wait":        httpclient.WithMaxWait(-1),
		"max wait is 2h":  httpclient.WithMaxWait(2 * time.Hour),
		"max total wait":  httpclient.WithMaxTotalWait(-time.Second),
		"attempt timeout": httpclient.WithAttemptTimeout(5),
		"body buffer":     httpclient.WithBodyBuffer(-1),
		"option is nil":   nil,
		"limiter is nil":  httpclient.WithLimiter((*limiter.Limiter)(nil)),
		"Multiplier":      httpclient.WithThrottle(retry.ThrottleSettings{Multiplier: 0.5}),
	} {
		_, err := httpclient.New(nil, o)
		if !errors.Is(err, limiter.ErrInvalidConfig) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error %v", field, err)
		}
		if _, err := httpclient.NewClient(o); err == nil {
			t.Errorf("%s: NewClient took it", field)
		}
	}
	// What the limiter of discovery finds is said to be its own.
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	for want, o := range map[string]httpclient.Option{
		"httpclient: discovery is options: need a Redis client": httpclient.WithDiscovery(nil, limiter.WithPrefix("x")),
		"httpclient: discovery: share is 2: ":                   httpclient.WithDiscovery(rdb, limiter.WithShare(2)),
		"httpclient: discovery: share is 0.5: ":                 httpclient.WithDiscovery(rdb, limiter.WithShare(0.5), limiter.WithFallback(fallback.Open)),
	} {
		if _, err := httpclient.New(nil, o); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	// One option serves several transports.
	o := httpclient.WithThrottle(retry.ThrottleSettings{})
	for range 2 {
		if _, err := httpclient.New(nil, o, httpclient.WithMaxWait(0), httpclient.WithLogger(nil)); err != nil {
			t.Error(err)
		}
	}
}

func TestBadRequests(t *testing.T) {
	rt := newTransport(t, scripted(status(200)))
	if _, err := rt.RoundTrip(nil); err == nil {
		t.Error("a nil request was sent")
	}
	closed := false
	if _, err := rt.RoundTrip(&http.Request{Body: closes{&closed}}); err == nil || !closed {
		t.Errorf("nil URL: %v, closed %v", err, closed)
	}
}

func TestBrokenBase(t *testing.T) {
	for _, d := range []time.Duration{0, time.Minute} {
		brokenBase(t, httpclient.WithAttemptTimeout(d))
	}
}

func brokenBase(t *testing.T, opt httpclient.Option) {
	t.Helper()
	nothing := roundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, nil })
	if resp, err := newTransport(t, nothing, opt).RoundTrip(get(t, api)); err == nil || resp != nil {
		t.Errorf("neither: %v, %v", resp, err)
	}
	closed := false
	both := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: closes{&closed}}, errors.New("both")
	})
	if resp, err := newTransport(t, both, opt).RoundTrip(once(get(t, api))); err == nil || resp != nil || !closed {
		t.Errorf("both: %v, %v, closed %v", resp, err, closed)
	}
	noBody := roundTripperFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200}, nil
	})
	resp, err := newTransport(t, noBody, opt).RoundTrip(get(t, api))
	if err != nil || resp.Body == nil || resp.Request == nil {
		t.Fatalf("no body: %+v, %v", resp, err)
	}
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("of no body there are %d bytes, %v", n, err)
	}
}
