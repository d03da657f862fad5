package httpclient_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// The fleet: processes whose goroutines send one request after the other to the
// same API, paced by one limit in Redis.
const (
	fleetProcesses  = 4
	fleetGoroutines = 8
	fleetWait       = 2 * time.Second

	workerEnv = "HTTPCLIENT_TEST_WORKER" // the API, a space, Redis
)

// told says when a cooldown has been told to the fleet.
type told struct{ *limiter.Limiter }

func (t told) Block(ctx context.Context, key string, d time.Duration, limit ...limiter.Limit) error {
	err := t.Limiter.Block(ctx, key, d, limit...)
	fmt.Println("told", err)
	return err
}

// quiet drops what go-redis prints about every failed dial.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// worker is one process of the fleet. It runs until its standard input ends.
func worker() int {
	api, addr, _ := strings.Cut(os.Getenv(workerEnv), " ")
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	redis.SetLogger(quiet{})
	// A busy machine must not make a process decide by itself, which has not met the 429.
	lim, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerSecond(100_000), 100_000), limiter.WithLogger(discard), limiter.WithBudget(2*time.Second))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer lim.Close()
	client, err := httpclient.NewClient(httpclient.WithLimiter(told{lim}), httpclient.WithLogger(discard))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for g := range fleetGoroutines {
		wg.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, api, nil)
				if err != nil {
					panic(err)
				}
				req.Header.Set("Worker", fmt.Sprintf("%s/%d", os.Getenv("WORKER"), g))
				if resp, err := client.Do(req); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}
		})
	}
	io.Copy(io.Discard, os.Stdin)
	cancel()
	wg.Wait()
	return 0
}

// fleetAPI is a server that can hold requests back, and remembers which
// goroutine of which process sent first when.
type fleetAPI struct {
	*httptest.Server

	mu      sync.Mutex
	changed *sync.Cond
	held    map[string]chan int // statuses to answer with
	holding bool
	first   map[string]time.Time
}

func newFleetAPI(t *testing.T) *fleetAPI {
	a := &fleetAPI{held: make(map[string]chan int), first: make(map[string]time.Time)}
	a.changed = sync.NewCond(&a.mu)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Worker")
		a.mu.Lock()
		if _, has := a.first[id]; !has {
			a.first[id] = time.Now()
			a.changed.Broadcast()
		}
		if !a.holding {
			a.mu.Unlock()
			return
		}
		answer := make(chan int, 1)
		a.held[id] = answer
		a.changed.Broadcast()
		a.mu.Unlock()
		select {
		case status := <-answer:
			if status == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", fmt.Sprint(int(fleetWait/time.Second)))
			}
			w.WriteHeader(status)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(a.Close)
	return a
}

// hold waits until every goroutine of the fleet has a request here.
func (a *fleetAPI) hold() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holding = true
	for len(a.held) < fleetProcesses*fleetGoroutines {
		a.changed.Wait()
	}
}

// refuse answers the request of one goroutine with 429.
func (a *fleetAPI) refuse(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[id] <- http.StatusTooManyRequests
	delete(a.held, id)
}

// release answers all others with 200, holds no more, and forgets who sent.
func (a *fleetAPI) release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holding = false
	clear(a.first)
	for _, answer := range a.held {
		answer <- http.StatusOK
	}
	clear(a.held)
}

// all waits until every goroutine has sent since the release.
func (a *fleetAPI) all() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.first) < fleetProcesses*fleetGoroutines {
		a.changed.Wait()
	}
}

// since returns when the goroutines of a process first sent since the release,
// relative to from, in order.
func (a *fleetAPI) since(process int, from time.Time) (at []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, t := range a.first {
		if strings.HasPrefix(id, fmt.Sprint(process, "/")) {
			at = append(at, t.Sub(from))
		}
	}
	slices.Sort(at)
	return at
}

// startFleet starts the processes and returns what they print, line by line.
func startFleet(t *testing.T, api, redisAddr string) (lines <-chan string) {
	t.Helper()
	out := make(chan string, 100)
	var stdins []io.Closer
	for i := range fleetProcesses {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), workerEnv+"="+api+" "+redisAddr, fmt.Sprint("WORKER=", i))
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for s := bufio.NewScanner(stdout); s.Scan(); {
				out <- fmt.Sprint(i, " ", s.Text())
			}
		}()
		t.Cleanup(func() {
			<-done
			if err := cmd.Wait(); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
		stdins = append(stdins, stdin)
	}
	t.Cleanup(func() { // which is the first to run
		for _, stdin := range stdins {
			stdin.Close()
		}
	})
	return out
}

func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(20 * time.Second):
		t.Fatal("the processes say nothing")
		return ""
	}
}

// TestOne429StopsTheFleet: process 0 gets a 429. Once it has told Redis, no
// goroutine of any process sends before the wait is over, and then they come
// back spread.
func TestOne429StopsTheFleet(t *testing.T) {
	srv := redistest.Start(t)
	api := newFleetAPI(t)
	lines := startFleet(t, api.URL, srv.Addr())

	api.hold()
	refused := time.Now()
	api.refuse("0/0")
	if line := next(t, lines); line != "0 told <nil>" {
		t.Fatalf("%q", line)
	}
	api.release()

	api.all()
	var back []time.Duration
	for i := range fleetProcesses {
		at := api.since(i, refused)
		if at[0] < fleetWait {
			t.Errorf("process %d sent %v after the 429, which asked for %v", i, at[0], fleetWait)
		}
		t.Logf("process %d came back from %v to %v", i, at[0], at[len(at)-1])
		back = append(back, at...)
	}
	// 32 goroutines, each at a random time within a second: all lie within half
	// of one once in 10⁸ runs.
	slices.Sort(back)
	if d := back[len(back)-1] - back[0]; d < fleetWait/4 {
		t.Errorf("all came back within %v", d)
	}
}

// TestOne429WithRedisKilled: the same within the process; the others can't
// know.
func TestOne429WithRedisKilled(t *testing.T) {
	srv := redistest.Start(t)
	api := newFleetAPI(t)
	lines := startFleet(t, api.URL, srv.Addr())

	api.hold()
	srv.Kill()
	refused := time.Now()
	api.refuse("0/0")
	if line := next(t, lines); !strings.HasPrefix(line, "0 told ") || line == "0 told <nil>" {
		t.Fatalf("%q", line)
	}
	api.release()

	api.all()
	for i := range fleetProcesses {
		at := api.since(i, refused)
		if i == 0 && at[0] < fleetWait {
			t.Errorf("the process sent %v after its 429, which asked for %v", at[0], fleetWait)
		}
		if i != 0 && at[0] > fleetWait {
			t.Errorf("process %d, which met no 429, first sent after %v", i, at[0])
		}
	}
}
