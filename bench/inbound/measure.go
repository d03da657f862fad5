package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"

	"github.com/holdfast-go/holdfast/bench/internal/turns"
)

const (
	clients  = 1000    // addresses that take turns
	plenty   = 1000000 // requests of a client in an hour: more than are sent
	inARow   = 20_000  // requests of a caller in memory, in a turn
	loopback = 2_000   // requests on the loopback, in a turn
	shorter  = 5       // times as many rounds in memory: turns are short there
)

var (
	bare = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) })

	answer    = []byte("ok")
	addresses = func() (all [clients]string) {
		for i := range all {
			all[i] = fmt.Sprintf("10.20.%d.%d:%d", i/250, 1+i%250, 40000+i)
		}
		return all
	}()
)

// response is a ResponseWriter in memory. It is used again and again, so that what is
// measured is none of its own.
type response struct {
	header         http.Header
	status, length int
}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *response) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.length += len(b)
	return len(b), nil
}

// caller sends one request after the other.
type caller struct {
	w    response
	r    *http.Request
	next int // client
}

// newCallers returns n of them, whose clients are apart.
func newCallers(n int) []*caller {
	all := make([]*caller, n)
	for i := range all {
		all[i] = &caller{
			w:    response{header: make(http.Header, 8)},
			r:    httptest.NewRequest(http.MethodGet, "/v1/things", nil),
			next: i * clients / n,
		}
	}
	return all
}

func (c *caller) send(h http.Handler) {
	clear(c.w.header)
	c.w.status, c.w.length = 0, 0
	c.r.RemoteAddr = addresses[c.next]
	if c.next++; c.next == clients {
		c.next = 0
	}
	h.ServeHTTP(&c.w, c.r)
}

// inMemory measures the handlers without a network, by one caller and by one per core.
// want is the status that each of them has to answer with.
func inMemory(names []string, handlers []http.Handler, rounds int, want func(int) int) (one, all []turns.Figures, err error) {
	for _, h := range handlers {
		prime := newCallers(1)[0]
		for range clients { // what there is of a limit of 1 is taken here
			prime.send(h)
		}
	}
	by := func(callers []*caller) ([]turns.Figures, error) {
		return turns.Medians(names, shorter*rounds, func(i int) (turns.Figures, error) {
			return turns.Cost(inARow, func() error { return together(callers, handlers[i], want(i)) })
		})
	}
	if one, err = by(newCallers(1)); err != nil {
		return nil, nil, err
	}
	all, err = by(newCallers(runtime.GOMAXPROCS(0)))
	for i := range all { // of one of the callers
		all[i].Allocs /= float64(runtime.GOMAXPROCS(0))
		all[i].Bytes /= float64(runtime.GOMAXPROCS(0))
	}
	return one, all, err
}

// together lets each of the callers send inARow requests.
func together(callers []*caller, h http.Handler, want int) error {
	errs := make([]error, len(callers))
	var done sync.WaitGroup
	for i, c := range callers {
		done.Go(func() {
			for range inARow {
				if c.send(h); c.w.status != want {
					errs[i] = fmt.Errorf("status %d, not %d", c.w.status, want)
					return
				}
			}
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// onLoopback measures the handlers in a server, with one connection.
func onLoopback(names []string, handlers []http.Handler, rounds int, want func(int) int) ([]turns.Figures, error) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	urls := make([]string, len(handlers))
	for i, h := range handlers {
		srv := httptest.NewServer(h)
		defer srv.Close()
		urls[i] = srv.URL
		if _, err := get(client, srv.URL); err != nil {
			return nil, err
		}
	}
	return turns.Medians(names, rounds, func(i int) (turns.Figures, error) {
		return turns.Cost(loopback, func() error {
			for range loopback {
				if status, err := get(client, urls[i]); err != nil || status != want(i) {
					return errors.Join(fmt.Errorf("status %d, not %d", status, want(i)), err)
				}
			}
			return nil
		})
	})
}

func get(client *http.Client, url string) (status int, err error) {
	resp, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
