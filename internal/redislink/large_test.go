//go:build !race

package redislink

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// list is the Redis of a large fleet: scripts/beat.lua on the lists of one limiter, which takes no
// time, and how often it was asked in each second.
type list struct {
	start time.Time

	mu    sync.Mutex
	down  bool
	peers map[string]int64
	dies  scores // of peers
	back  map[string]int64
	came  []scored // of back, by time
	zeros int      // of back
	ends  int64    // of back

	beats []int // by second
}

type scored struct {
	id    string
	score int64
}

// scores is a heap of scores, of which those that are not the last of a process are void.
type scores []scored

func (s scores) Len() int           { return len(s) }
func (s scores) Less(i, j int) bool { return s[i].score < s[j].score }
func (s scores) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *scores) Push(x any)        { *s = append(*s, x.(scored)) }
func (s *scores) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

func newList() *list {
	l := &list{start: time.Now()}
	l.lose(false)
	return l
}

// lose loses the server, or brings it back empty.
func (l *list) lose(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.peers, l.dies = down, map[string]int64{}, nil
	l.back, l.came, l.zeros = map[string]int64{}, nil, 0
}

func (l *list) isDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down
}

func (l *list) Process(_ context.Context, cmd redis.Cmder) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	args := cmd.Args()
	isBeat := args[0] == "evalsha" && *args[3].(*string) == "p:v1:peers"
	if second := int(time.Since(l.start) / time.Second); isBeat {
		l.beats = append(l.beats, make([]int, max(0, second+1-len(l.beats)))...)
		l.beats[second]++
	}
	switch {
	case l.down:
		cmd.SetErr(errors.New("no connection"))
	case args[0] != "evalsha":
	case !isBeat: // a probe
		cmd.(interface{ SetVal([]int64) }).SetVal([]int64{1, 0, 0, 0})
	default:
		argv := args[3+args[2].(int):]
		cmd.(interface{ SetVal([]int64) }).SetVal(l.beat(argv[1].(string), argv[2].(int64), argv[3].(int64), argv[4].(int64), argv[5].(int64)))
	}
	return cmd.Err()
}

func (l *list) Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	p := new(pipe)
	_ = fn(p)
	for _, cmd := range p.cmds {
		_ = l.Process(ctx, cmd)
	}
	return p.cmds, nil
}

func (l *list) beat(id string, life, longer, since, patience int64) []int64 {
	now := time.Since(l.start).Microseconds() + 1
	if since == 0 || l.peers[id] < now {
		l.peers[id] = now + longer
		heap.Push(&l.dies, scored{id, now + longer})
	}
	for len(l.dies) > 0 && (l.dies[0].score < now-life || l.dies[0].score < l.peers[l.dies[0].id]) {
		if dead := heap.Pop(&l.dies).(scored); l.peers[dead.id] == dead.score {
			delete(l.peers, dead.id)
		}
	}
	if now > l.ends {
		l.back, l.came, l.zeros = map[string]int64{}, nil, 0
	}
	was, listed := l.back[id]
	waits := since > 0 && was < now-since
	switch {
	case waits, since == 0 && len(l.back) > 0:
		if listed && was == 0 {
			l.zeros--
		}
		l.back[id] = now
		l.came = append(l.came, scored{id, now})
	case since < 0 && !listed:
		l.back[id] = 0
		l.zeros++
	}
	if waits || since < 0 {
		l.ends = now + patience
	}
	for len(l.came) > 0 && l.back[l.came[0].id] != l.came[0].score {
		l.came = l.came[1:]
	}
	fresh, first := int64(len(l.back)), now
	switch {
	case since > 0:
		fresh -= int64(l.zeros)
		i := 0
		for ; i < len(l.came) && l.came[i].score < now-since; i++ {
			if l.back[l.came[i].id] == l.came[i].score {
				fresh--
			}
		}
		for ; i < len(l.came) && l.back[l.came[i].id] != l.came[i].score; i++ {
		}
		if i < len(l.came) {
			first = l.came[i].score
		}
	case l.zeros > 0:
		first = 0
	case len(l.came) > 0:
		first = l.came[0].score
	}
	last := now
	if len(l.came) > 0 {
		last = l.came[len(l.came)-1].score
	} else if l.zeros > 0 {
		last = 0
	}
	return []int64{int64(len(l.peers)), fresh, now - first, now - last}
}

// crowd is a large fleet that is asked for decisions all the time.
type crowd struct {
	idle  time.Duration // the time in which each notices that Redis is away
	list  *list
	links []*Link
	wg    sync.WaitGroup
}

// large runs a test with a fleet of n processes, which start within a second and return together or
// each alone.
func large(t *testing.T, n int, alone bool, test func(c *crowd)) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
		defer func() { _ = rdb.Close() }()
		c := &crowd{idle: max(time.Second, time.Duration(n)*50*time.Microsecond), list: newList()}
		asked := lua.NewClient(c.list)
		var settings breaker.Settings
		if alone { // as with the policies Open and Closed, and soon after each other
			settings.OpenMin, settings.OpenMax = time.Second, time.Second
		}
		for i := range n {
			l, err := New(Config{Client: rdb, Prefix: "p", Process: strconv.Itoa(i), Logger: slog.New(slog.DiscardHandler), Breaker: settings})
			if err != nil {
				t.Fatal(err)
			}
			l.wire.lua = asked
			if !alone {
				l.OnReturn(func(context.Context) {})
			}
			c.links = append(c.links, l)
			c.wg.Go(func() { c.run(l, time.Duration(i)*time.Second/time.Duration(n)) })
		}
		test(c)
		c.stop(0)
		c.wg.Wait()
	})
}

// run asks for decisions as a limiter does: when a heartbeat is due, and once a second while Redis does not
// decide. Others make no difference.
func (c *crowd) run(l *Link, at time.Duration) {
	ctx, srv := l.Life(), l.Server("k")
	for wait := at; pause(ctx, wait); {
		if wait = min(c.idle, time.Duration(l.fleet.turn.next.Load())-l.Now()); wait > 0 && !c.list.isDown() && !srv.Unavailable() {
			continue
		}
		wait = time.Second
		if !srv.Unavailable() && l.Ask(ctx, srv, &Op{ID: "k", Command: lua.Plain{"get", "k"}}, l.Budget) == nil && !srv.Unavailable() {
			l.Beat(srv)
			wait = 100 * time.Millisecond // it is sent by then
		} else {
			l.BeatAway(srv)
		}
	}
}

// known is the least and the most processes that one of them counts.
func (c *crowd) known() (least, most int) {
	least = MaxProcesses
	for _, l := range c.links {
		least, most = min(least, l.Processes()), max(most, l.Processes())
	}
	return least, most
}

// stop ends all processes but some without a word.
func (c *crowd) stop(but int) {
	for _, l := range c.links[but:] {
		l.Background.Close()
	}
	c.links = c.links[:but]
}

// after is how many heartbeats were sent in each second of a time that begins now.
func (c *crowd) after(d time.Duration) []int {
	from := int(time.Since(c.list.start) / time.Second)
	time.Sleep(d)
	c.list.mu.Lock()
	defer c.list.mu.Unlock()
	return append(c.list.beats[min(from, len(c.list.beats)):], 0)
}

// TestLargeFleetsSendFewHeartbeats: fleets that start within a second send a heartbeat for each process, and
// then a bounded number in a second, with which all of them are counted.
func TestLargeFleetsSendFewHeartbeats(t *testing.T) {
	for n, d := range map[int]time.Duration{1000: 10 * time.Second, 10_000: 12 * time.Second} {
		large(t, n, false, func(c *crowd) {
			sent := c.after(d)
			t.Logf("%d processes: %v", n, sent)
			if sent[0] > n+beatsPerSecond || slices.Max(sent[1:]) > beatsPerSecond*11/10 {
				t.Errorf("%d processes sent %v heartbeats", n, sent)
			}
			if least, most := c.known(); least != n || most != n {
				t.Errorf("%d processes count %d to %d", n, least, most)
			}
		})
	}
}

// TestLargeFleetReturns: the processes of a large fleet that are back ask for each other a bounded number of
// times in a second, and send no crowd of heartbeats when they have returned, together or each alone.
func TestLargeFleetReturns(t *testing.T) {
	const n = 5000
	for _, alone := range []bool{false, true} {
		large(t, n, alone, func(c *crowd) {
			time.Sleep(5 * time.Second)
			c.list.lose(true)
			time.Sleep(12 * time.Second) // ten failures open a breaker
			c.list.lose(false)
			most := returnsPerSecond * 11 / 10
			if alone {
				most = beatsPerSecond * 5 / 4
			}
			back := c.after(7 * time.Second)
			later := c.after(10 * time.Second)
			t.Logf("alone %v: %v while they return, %v after that", alone, back, later)
			if slices.Max(back) > most || slices.Max(later) > beatsPerSecond*5/4 {
				t.Errorf("alone %v: %v while they return, %v after that", alone, back, later)
			}
			for _, l := range c.links {
				if l.Server("k").Unavailable() {
					t.Fatal("one has not returned")
				}
			}
			if least, most := c.known(); least != n || most != n {
				t.Errorf("%d processes count %d to %d", n, least, most)
			}
		})
	}
}

// TestScale writes into docs/scale.md how often large fleets send heartbeats. make scale runs it, and names the
// file by SCALE.
func TestScale(t *testing.T) {
	file := os.Getenv("SCALE")
	if file == "" {
		return
	}
	var b strings.Builder
	b.WriteString("| processes | a heartbeat every | heartbeats per second | in the second in which all start | most per second after that | until all know all | a process counts for | most calls per second of a return | most heartbeats per second after it |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, n := range []int{100, 1000, 10_000, 100_000} {
		large(t, n, false, func(c *crowd) {
			began, known := time.Now(), time.Duration(0)
			for known == 0 {
				time.Sleep(500 * time.Millisecond)
				if least, _ := c.known(); least == n {
					known = time.Since(began)
				}
			}
			time.Sleep(5 * time.Second)
			f := c.links[0].fleet
			every, life := f.every(), BeatLife+f.longer()
			seconds := max(10, int(every/time.Second))
			steady, sum := c.after(time.Duration(seconds)*time.Second), 0
			for _, sent := range steady[:seconds] {
				sum += sent
			}
			first, most := c.list.beats[0], slices.Max(c.list.beats[1:])
			c.list.lose(true)
			time.Sleep(20 * time.Second)
			c.list.lose(false)
			back := c.after(7 * time.Second)
			later := c.after(time.Duration(seconds) * time.Second)
			row := fmt.Sprintf("| %d | %v | %d | %d | %d | %v | %v | %d | %d |\n", n, every, sum/seconds, first, most, known, life, slices.Max(back), slices.Max(later))
			t.Log(row, back, later)
			b.WriteString(row)
		})
	}
	redistest.Section(t, file, "heartbeats", b.String())
}
