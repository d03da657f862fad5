package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"time"
)

// figures are per request.
type figures struct{ ns, allocs, bytes float64 }

// target is where requests go.
type target struct {
	base http.RoundTripper
	url  string
}

// memory answers 200 without work, once it has read the body.
type memory struct{ resp *http.Response }

func (m memory) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	resp := *m.resp // some transports change it
	resp.Request = r
	return &resp, nil
}

func inMemory() target {
	return target{memory{&http.Response{
		StatusCode: http.StatusOK, Body: http.NoBody,
		Header: http.Header{"Content-Type": {"text/plain"}, "Date": {"Mon, 02 Jan 2006 15:04:05 GMT"}, "Content-Length": {"2"}},
	}}, "http://api.test/v1/things"}
}

func loopback() (target, func()) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	base := &http.Transport{}
	return target{base, srv.URL}, func() {
		base.CloseIdleConnections()
		srv.Close()
	}
}

// measure lets all contenders send n requests in each round, in an order that
// moves on by one, and returns the medians.
func measure(to target, rounds, n int) ([]figures, error) {
	trips := make([]http.RoundTripper, len(contenders))
	for i, c := range contenders {
		var err error
		if trips[i], err = c.wrap(to.base); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	all := make([][]figures, len(trips))
	for round := range rounds + 1 {
		for i := range trips {
			i = (i + round) % len(trips)
			f, err := send(trips[i], to.url, n)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", contenders[i].name, err)
			}
			if round > 0 { // the first one warms up
				all[i] = append(all[i], f)
			}
		}
	}
	medians := make([]figures, len(trips))
	for i, fs := range all {
		medians[i] = figures{
			median(fs, func(f figures) float64 { return f.ns }),
			median(fs, func(f figures) float64 { return f.allocs }),
			median(fs, func(f figures) float64 { return f.bytes }),
		}
	}
	return medians, nil
}

func median(fs []figures, of func(figures) float64) float64 {
	var vs []float64
	for _, f := range fs {
		vs = append(vs, of(f))
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}

// send sends n requests one after the other.
func send(rt http.RoundTripper, url string, n int) (figures, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return figures{}, err
	}
	return cost(n, func() error { return once(rt, req) })
}

func once(rt http.RoundTripper, req *http.Request) error {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	return resp.Body.Close()
}

func cost(n int, f func() error) (figures, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range n {
		if err := f(); err != nil {
			return figures{}, err
		}
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	per := float64(n)
	return figures{
		float64(took) / per,
		float64(after.Mallocs-before.Mallocs) / per,
		float64(after.TotalAlloc-before.TotalAlloc) / per,
	}, nil
}

// bodyCost returns the bytes that each contender allocates for a request with a
// body of the given size that can be made anew, in memory.
func bodyCost(size int64) ([]float64, error) {
	to := inMemory()
	bodies := make([]float64, len(contenders))
	for i, c := range contenders {
		rt, err := c.wrap(to.base)
		if err != nil {
			return nil, err
		}
		f, err := cost(20, func() error {
			body := func() (io.ReadCloser, error) {
				return io.NopCloser(io.LimitReader(zeros{}, size)), nil
			}
			req, err := http.NewRequest(http.MethodPut, to.url, nil)
			if err != nil {
				return err
			}
			req.Body, _ = body()
			req.GetBody, req.ContentLength = body, size
			return once(rt, req)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		bodies[i] = f.bytes
	}
	return bodies, nil
}

// zeros is an endless file.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
