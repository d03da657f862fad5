package limiter_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// What the fleet of TestClusterChanges asks: about four times as much as is admitted.
const (
	fleetSize  = 4
	fleetKeys  = 240
	fleetRate  = 5 // per second and key
	fleetBurst = 5
	// fleetBudget is what a decision may take on a machine that is busy with twelve servers:
	// what is local then is so because of the cluster.
	fleetBudget = 500 * time.Millisecond
)

// keyAccount is what one process decided about one key.
type keyAccount struct {
	mu       sync.Mutex
	admitted int
	changes  int // from Redis to local decisions, and back
	local    time.Duration
	source   limiter.Source
	since    time.Time
}

func (a *keyAccount) note(res limiter.Result, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if res.Allowed {
		a.admitted++
	}
	source := res.Source
	if source == limiter.SourceCache {
		return // a denial, of either
	}
	if source == limiter.SourceLocal && a.source == limiter.SourceLocal {
		a.local += at.Sub(a.since)
	}
	if source != a.source {
		a.changes++
	}
	a.source, a.since = source, at
}

// changingFleet is processes that share limits in a cluster, and what they did.
type changingFleet struct {
	accounts [fleetSize][fleetKeys]keyAccount

	mu    sync.Mutex
	phase *phase
	all   []*phase
	stop  chan struct{}
	wg    sync.WaitGroup
}

// phase is what was decided while the cluster changed in one way.
type phase struct {
	name                    string
	took                    time.Duration
	decisions, local, wrong int
	errors                  int
	deadSlots               map[int]bool
}

func startChangingFleet(t *testing.T, c *redisproc.Cluster) *changingFleet {
	f := &changingFleet{stop: make(chan struct{})}
	for p := range fleetSize {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
		t.Cleanup(func() { _ = rdb.Close() })
		lim := newLimiter(t, rdb, limiter.TokenBucket(limiter.PerSecond(fleetRate), fleetBurst),
			limiter.WithShare(1.0/fleetSize), limiter.WithBudget(fleetBudget), limiter.WithProcess(fmt.Sprint("p", p)))
		for caller := range 8 {
			f.wg.Go(func() {
				for n := caller; ; n++ {
					select {
					case <-f.stop:
						return
					default:
					}
					f.ask(t, lim, p, n*7%fleetKeys)
					time.Sleep(5 * time.Millisecond) // a rate, not a race
				}
			})
		}
	}
	return f
}

func (f *changingFleet) ask(t *testing.T, lim *limiter.Limiter, p, key int) {
	id := fmt.Sprint("k", key)
	res, err := lim.Allow(context.Background(), id)
	f.accounts[p][key].note(res, time.Now())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase == nil {
		return
	}
	f.phase.decisions++
	if err != nil {
		if f.phase.errors++; f.phase.errors == 1 {
			t.Errorf("%s: %v", f.phase.name, err)
		}
	}
	if res.Source == limiter.SourceLocal {
		f.phase.local++
		if !f.phase.deadSlots[redislink.Slot(id)] {
			f.phase.wrong++
		}
	}
}

// during counts what is decided while change runs, and until after it.
func (f *changingFleet) during(name string, deadSlots []int, change func()) {
	ph := &phase{name: name, deadSlots: map[int]bool{}}
	for _, s := range deadSlots {
		ph.deadSlots[s] = true
	}
	f.mu.Lock()
	f.phase, f.all = ph, append(f.all, ph)
	f.mu.Unlock()
	start := time.Now()
	change()
	time.Sleep(5 * time.Second) // in which the clients learn of it
	ph.took = time.Since(start)
}

// TestClusterChanges: while a fleet uses its limits, a master of a cluster dies and its replica
// takes over, half of the hash slots move, and a master joins and leaves. No caller gets an
// error, no key exceeds the bound of P5, and only keys of the dead master are decided locally.
//
// HOLDFAST_CHANGES names a file to write the counts to.
func TestClusterChanges(t *testing.T) {
	if os.Getenv("HOLDFAST_LONG") != "1" {
		t.Skip("takes minutes: HOLDFAST_LONG=1 runs it")
	}
	var report strings.Builder
	for _, masters := range []int{3, 6} {
		t.Run(fmt.Sprint(masters, " masters"), func(t *testing.T) {
			report.WriteString(clusterChanges(t, masters))
		})
	}
	if name := os.Getenv("HOLDFAST_CHANGES"); name != "" && !t.Failed() {
		must(t, os.WriteFile(name, []byte(whence(t)+report.String()), 0o644))
	}
}

// whence is the first line of a file of figures.
func whence(t *testing.T) string {
	t.Helper()
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	must(t, err)
	return fmt.Sprintf("Measured by `make cluster-changes` on %s at commit %.10s, %s, %d cores.\n",
		time.Now().UTC().Format(time.DateOnly), commit, runtime.Version(), runtime.NumCPU())
}

func clusterChanges(t *testing.T, masters int) string {
	c := redistest.StartCluster(t, masters, 1)
	f := startChangingFleet(t, c)
	time.Sleep(3 * time.Second) // connections, scripts, the first bursts
	began := time.Now()
	f.during("nothing", nil, func() { time.Sleep(10 * time.Second) })

	dead := c.Masters[0]
	lost, err := c.SlotsOf(dead)
	must(t, err)
	f.during("a master is killed, its replica takes over", lost, func() {
		must(t, dead.Kill())
		rarely(t, "the replica serves", func() bool {
			s, err := c.MasterOf(lost[0])
			return err == nil && s != dead
		})
		must(t, c.WaitOK())
	})
	f.during("the dead master returns as a replica", nil, func() {
		must(t, dead.Restart())
		must(t, c.WaitOK())
	})
	f.during("half of the hash slots move", nil, func() {
		// Each master gives half of its slots to the next one.
		var serving []*redisproc.Server
		var slots [][]int
		for _, s := range c.Nodes() {
			of, err := c.SlotsOf(s)
			must(t, err)
			if len(of) > 0 {
				serving, slots = append(serving, s), append(slots, of)
			}
		}
		for i, s := range serving {
			must(t, c.MoveSlots(slots[i][:len(slots[i])/2], s, serving[(i+1)%len(serving)]))
		}
	})
	var joined *redisproc.Server
	var taken []int
	giver, err := c.MasterOf(0)
	must(t, err)
	f.during("a master joins and gets half of another's slots", nil, func() {
		joined, err = c.Add()
		must(t, err)
		of, err := c.SlotsOf(giver)
		must(t, err)
		taken = of[:len(of)/2]
		must(t, c.MoveSlots(taken, giver, joined))
	})
	f.during("it gives them back and leaves", nil, func() {
		must(t, c.MoveSlots(taken, joined, giver))
		must(t, c.Remove(joined))
	})
	f.during("nothing again", nil, func() { time.Sleep(5 * time.Second) })
	close(f.stop)
	f.wg.Wait()
	took := time.Since(began) + 3*time.Second
	return f.judge(t, masters, took, lost)
}

// judge checks each phase and each key, and returns a table.
func (f *changingFleet) judge(t *testing.T, masters int, took time.Duration, lost []int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n**%d masters with a replica each**, %d processes, %d keys, %s of traffic\n\n", masters, fleetSize, fleetKeys, took.Round(time.Second))
	b.WriteString("| while | seconds | decisions | local | local, of servers that answer | errors |\n|---|---|---|---|---|---|\n")
	for _, ph := range f.all {
		fmt.Fprintf(&b, "| %s | %.0f | %d | %d | %d | %d |\n", ph.name, ph.took.Seconds(), ph.decisions, ph.local, ph.wrong, ph.errors)
		if ph.wrong*100 > ph.decisions {
			t.Errorf("%s: %d of %d decisions were local though their server answered", ph.name, ph.wrong, ph.decisions)
		}
	}
	admitted, worst := 0, 0.0
	for key := range fleetKeys {
		of, changes, local := 0, 0, time.Duration(0)
		for p := range fleetSize {
			a := &f.accounts[p][key]
			of, changes, local = of+a.admitted, changes+a.changes, local+a.local
		}
		// P5: one process in fleetSize has a claim of 1/fleetSize; a local time has two changes; the
		// replica of the master that died may lack its last writes.
		lostState := 0.0
		if slices.Contains(lost, redislink.Slot(fmt.Sprint("k", key))) {
			lostState = 1
		}
		bound := fleetRate*(took.Seconds()+local.Seconds()/fleetSize) + fleetBurst*(1+lostState+float64(changes)/2/fleetSize)
		admitted += of
		worst = max(worst, float64(of)/bound)
		if float64(of) > bound {
			t.Errorf("key %d: %d admitted, at most %.1f: local for %v, %d changes", key, of, bound, local, changes)
		}
	}
	fmt.Fprintf(&b, "\n%d units were admitted; the key nearest to the bound of P5 used %.3f of it.\n", admitted, worst)
	t.Log(b.String())
	return b.String()
}
