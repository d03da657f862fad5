//go:build !race

package httpclient_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
)

// The storm: a server that serves 1,000 requests a second, first come first
// served, and also those whose client no longer waits; it stands still for 10 s.
const (
	stormService = time.Millisecond
	stormTimeout = time.Second // of an attempt
	stormFrom    = 10 * time.Second
	stormUntil   = 20 * time.Second
)

// queue is that server, as a base.
type queue struct {
	mu    sync.Mutex
	start time.Time
	free  time.Duration // when all that came so far is served
	peak  int           // the most attempts in a second
	in    int
	sec   time.Duration
}

var errStormTimeout = errors.New("timeout awaiting response headers")

func (q *queue) RoundTrip(r *http.Request) (*http.Response, error) {
	q.mu.Lock()
	now := time.Since(q.start)
	if s := now.Truncate(time.Second); s != q.sec {
		q.sec, q.in = s, 0
	}
	q.in++
	q.peak = max(q.peak, q.in)
	q.free = max(q.free, now) + stormService
	if q.free > stormFrom && q.free < stormUntil {
		q.free += stormUntil - stormFrom
	}
	d := q.free - now
	q.mu.Unlock()
	if d > stormTimeout {
		time.Sleep(stormTimeout)
		return nil, errStormTimeout
	}
	time.Sleep(d)
	return respond(r, status(200)), nil
}

// storm sends load × 1,000 requests a second and returns how long after the
// outage 95 % of them succeed again, for five consecutive seconds, and the most
// attempts that came in a second. The time is at most limit.
func storm(t *testing.T, load float64, limit time.Duration, wrap func(http.RoundTripper) http.RoundTripper) (recovery time.Duration, peak int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := &queue{start: time.Now()}
		rt := wrap(q)
		r := get(t, api)
		perSecond := int(load / stormService.Seconds())
		want := perSecond * 95 / 100
		var mu sync.Mutex
		good := make(map[int]int)
		var wg sync.WaitGroup
		row := 0
		for second := 0; ; second++ {
			for range perSecond {
				wg.Go(func() {
					resp, err := rt.RoundTrip(r)
					if err != nil {
						return
					}
					resp.Body.Close()
					mu.Lock()
					good[int(time.Since(q.start)/time.Second)]++
					mu.Unlock()
				})
				time.Sleep(time.Second / time.Duration(perSecond))
			}
			if second < int(stormUntil/time.Second) {
				continue
			}
			mu.Lock()
			if good[second] >= want {
				row++
			} else {
				row = 0
			}
			mu.Unlock()
			recovery = time.Duration(second+1)*time.Second - stormUntil
			if row == 5 {
				recovery -= 5 * time.Second
				break
			}
			if recovery >= limit {
				recovery = limit
				break
			}
		}
		wg.Wait()
		peak = q.peak
	})
	return recovery, peak
}

// naive retries a request three times, politely spaced.
type naive struct{ base http.RoundTripper }

func (n naive) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	for i := range 4 {
		if resp, err = n.base.RoundTrip(r); err == nil {
			return resp, nil
		}
		time.Sleep(rand.N(500 * time.Millisecond << i))
	}
	return nil, err
}

// TestRetryStorm: three retries of each request keep an overloaded server down
// long after its outage; those that a budget allows hardly delay its recovery, and
// with a throttle there is no queue to work off.
func TestRetryStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates minutes of 1,000 requests per second")
	}
	for _, load := range []float64{0.50, 0.70, 0.85} {
		t.Run(fmt.Sprintf("load %.2f", load), func(t *testing.T) {
			none, nonePeak := storm(t, load, 5*time.Minute, func(b http.RoundTripper) http.RoundTripper { return b })
			limit := 2 * none
			plain, plainPeak := storm(t, load, limit, func(b http.RoundTripper) http.RoundTripper { return naive{b} })
			ours, oursPeak := storm(t, load, limit, func(b http.RoundTripper) http.RoundTripper {
				return newTransport(t, b, httpclient.WithAttempts(4), httpclient.WithoutThrottle())
			})
			throttled, throttledPeak := storm(t, load, limit, func(b http.RoundTripper) http.RoundTripper {
				return newTransport(t, b, httpclient.WithAttempts(4))
			})
			t.Logf("no retries %v (peak %d/s), three retries %v (%d/s), ours %v (%d/s), with the throttle %v (%d/s)", none, nonePeak, plain, plainPeak, ours, oursPeak, throttled, throttledPeak)
			if plain < limit {
				t.Errorf("plain retries recovered after %v: the storm is too weak to prove anything", plain)
			}
			if most := none * 13 / 10; ours > most {
				t.Errorf("recovered after %v, want at most %v", ours, most)
			}
			if throttled > none/2 {
				t.Errorf("with the throttle recovered after %v, want at most half of %v", throttled, none)
			}
		})
	}
}
