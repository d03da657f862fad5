package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
)

const (
	// fleetWorkers is how many processes a fleet has.
	fleetWorkers = 4
	// fleetPace is how often each of them has something to ask of the third party:
	// all together more than twice its quota.
	fleetPace = 250 * time.Millisecond
)

// fleetSecond is what a third party saw in one second.
type fleetSecond struct {
	At      float64 `json:"at"` // its end, Unix time in milliseconds
	Served  int     `json:"served"`
	Refused int     `json:"refused"` // with 429
	Running bool    `json:"running"`
	// Pauses are the times in which workers held back what they had to send.
	Pauses []pause `json:"pauses"`
}

// fleetState is a fleet as the page sees it.
type fleetState struct {
	Shared  bool          `json:"shared"`
	Running bool          `json:"running"`
	Served  int           `json:"served"`
	Refused int           `json:"refused"`
	Seconds []fleetSecond `json:"seconds"`
}

// fleet is workers that call one third party. With shared, a 429 that one of them gets
// stops all; without, each finds out by itself.
type fleet struct {
	shared  bool
	api     *thirdParty
	workers []*fleetWorker
	pauses  *pauses

	doing sync.Mutex // one change at a time
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex
	running bool
	served  int
	refused int
	past    []fleetSecond
}

// fleetWorker stands for a process.
type fleetWorker struct {
	number int
	pauses *pauses
	rdb    *redis.Client
	lim    *limiter.Limiter
	base   *http.Transport
	client *http.Client
}

// paces hides all of a limiter but that it paces: who has no Block cannot tell others
// of a cooldown.
type paces struct{ limiter.Allower }

// dial is how workers reach the third party.
type dial func(ctx context.Context, network, addr string) (net.Conn, error)

// newFleet returns a fleet whose third party listens at l, and closes that.
func newFleet(shared bool, l net.Listener, dial dial, client func() *redis.Client, prefix string, budget time.Duration) (*fleet, error) {
	api, err := startThirdParty(l)
	if err != nil {
		return nil, err
	}
	f := &fleet{shared: shared, api: api, pauses: newPauses(fleetWorkers), past: []fleetSecond{}}
	for i := range fleetWorkers {
		w, err := newFleetWorker(i, f.pauses, shared, dial, client(), fmt.Sprintf("%s:fleet:%v", prefix, shared), budget)
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.workers = append(f.workers, w)
	}
	return f, nil
}

func newFleetWorker(number int, p *pauses, shared bool, dial dial, rdb *redis.Client, prefix string, budget time.Duration) (*fleetWorker, error) {
	quiet := slog.New(slog.DiscardHandler)
	w := &fleetWorker{number: number, pauses: p, rdb: rdb}
	var err error
	// The limit is far above what the fleet asks for: it is there to carry cooldowns.
	w.lim, err = limiter.New(w.rdb, limiter.GCRA(limiter.PerSecond(1000), 1000),
		limiter.WithPrefix(prefix), limiter.WithProcess(fmt.Sprint("worker ", number+1)), limiter.WithBudget(budget), limiter.WithLogger(quiet))
	if err != nil {
		return nil, errors.Join(err, w.rdb.Close())
	}
	var allower limiter.Allower = w.lim
	if !shared {
		allower = paces{w.lim}
	}
	w.base = http.DefaultTransport.(*http.Transport).Clone()
	w.base.Proxy, w.base.DialContext = nil, dial // the third party is on this machine
	transport, err := httpclient.New(sends{w.base, p, number},
		httpclient.WithLimiter(allower),
		httpclient.WithKey(func(*http.Request) string { return "third-party" }),
		httpclient.WithLogger(quiet),
	)
	if err != nil {
		return nil, errors.Join(err, w.lim.Close(), w.rdb.Close())
	}
	w.client = &http.Client{Transport: transport, Timeout: 30 * time.Second}
	return w, nil
}

// set starts or stops the workers.
func (f *fleet) set(ctx context.Context, run bool) {
	f.doing.Lock()
	defer f.doing.Unlock()
	if run == (f.stop != nil) {
		return
	}
	if !run {
		f.stop()
		f.stop = nil
		f.tasks.Wait()
	} else {
		ctx, f.stop = context.WithCancel(ctx)
		for i, w := range f.workers {
			f.tasks.Go(func() {
				// Processes don't keep step.
				if sleepUntil(ctx, time.Now().Add(fleetPace*time.Duration(i)/fleetWorkers)) == nil {
					w.work(ctx, f.api.url)
				}
			})
		}
	}
	f.mu.Lock()
	f.running = run
	f.mu.Unlock()
}

// work asks the third party whenever there is something to ask, one at a time.
func (w *fleetWorker) work(ctx context.Context, url string) {
	tick := time.NewTicker(fleetPace)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return
		}
		w.pauses.begin(w.number)
		// What fails is tried again at the next tick; the third party counts.
		if resp, err := w.client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		w.pauses.end(w.number)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// cut ends the current second.
func (f *fleet) cut(now time.Time) fleetSecond {
	s := f.api.cut()
	s.Pauses = f.pauses.cut(now)
	f.mu.Lock()
	defer f.mu.Unlock()
	s.At, s.Running = unixMs(now), f.running
	f.served += s.Served
	f.refused += s.Refused
	f.past = append(f.past, s)
	f.past = f.past[max(0, len(f.past)-minute):]
	return s
}

// state is without the seconds when they are known already.
func (f *fleet) state(whole bool) fleetState {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := fleetState{Shared: f.shared, Running: f.running, Served: f.served, Refused: f.refused, Seconds: []fleetSecond{}}
	if whole {
		s.Seconds = append(s.Seconds, f.past...)
	} else if n := len(f.past); n > 0 {
		s.Seconds = append(s.Seconds, f.past[n-1])
	}
	return s
}

func (f *fleet) reset() {
	f.api.cut()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.served, f.refused, f.past = 0, 0, []fleetSecond{}
}

func (f *fleet) close() error {
	f.set(context.Background(), false)
	var errs []error
	for _, w := range f.workers {
		w.base.CloseIdleConnections()
		errs = append(errs, w.lim.Close(), w.rdb.Close())
	}
	f.api.close()
	return errors.Join(errs...)
}
