package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/holdfast-go/holdfast/bench/internal/turns"
)

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
func measure(to target, rounds, n int) ([]turns.Figures, error) {
	trips := make([]http.RoundTripper, len(contenders))
	for i, c := range contenders {
		var err error
		if trips[i], err = c.wrap(to.base); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	names := make([]string, len(contenders))
	for i, c := range contenders {
		names[i] = c.name
	}
	return turns.Medians(names, rounds, func(i int) (turns.Figures, error) { return send(trips[i], to.url, n) })
}

// send sends n requests one after the other.
func send(rt http.RoundTripper, url string, n int) (turns.Figures, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return turns.Figures{}, err
	}
	return turns.Cost(n, func() error {
		for range n {
			if err := once(rt, req); err != nil {
				return err
			}
		}
		return nil
	})
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

// bodyCost returns the bytes that each contender allocates for a request with a
// body of the given size that can be made again, in memory.
func bodyCost(size int64) ([]float64, error) {
	to := inMemory()
	const times = 20
	bodies := make([]float64, len(contenders))
	for i, c := range contenders {
		rt, err := c.wrap(to.base)
		if err != nil {
			return nil, err
		}
		send := func() error {
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
		}
		f, err := turns.Cost(times, func() error {
			for range times {
				if err := send(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		bodies[i] = f.Bytes
	}
	return bodies, nil
}

// zeros is an endless file.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
