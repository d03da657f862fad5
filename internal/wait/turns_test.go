package wait_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/wait"
)

// acts is a waiter whose answers are written down, with how long each takes; it goes after the last one.
type acts struct {
	answers []wait.Answer
	takes   []time.Duration
	units   []int           // that it heard of, by Queue
	asked   []time.Duration // since start
	wakes   time.Duration   // after it was called
	leaves  time.Duration   // after start; 0 is never
	start   time.Time
}

func (w *acts) Ask() (wait.Answer, error) {
	i := len(w.asked)
	w.asked = append(w.asked, time.Since(w.start))
	if i < len(w.takes) {
		time.Sleep(w.takes[i])
	}
	if i < len(w.answers) {
		return w.answers[i], nil
	}
	return wait.Answer{Go: true}, nil
}

func (w *acts) Queue(units int, _ time.Duration) error {
	w.units = append(w.units, units)
	return nil
}

func (w *acts) Sleep(d time.Duration, called <-chan struct{}) error {
	var over, left <-chan time.Time
	if d >= 0 {
		over = time.After(d)
	}
	if w.leaves > 0 {
		left = time.After(w.leaves - time.Since(w.start))
	}
	select {
	case <-over:
		return nil
	case <-called:
	case <-left:
		return errGivesUp
	}
	select {
	case <-time.After(w.wakes):
		return nil
	case <-left:
		return errGivesUp
	}
}

// stand lets waiters for so many units each come 1 ms apart, and calls the line at some times.
func stand(t *testing.T, units []int, all []*acts, calls ...time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var lines wait.Lines[string]
		var ends sync.WaitGroup
		for _, at := range calls {
			ends.Go(func() {
				time.Sleep(at)
				lines.Call(func(string) bool { return true })
			})
		}
		for i, w := range all {
			w.start = start
			ends.Go(func() {
				if err := lines.Wait("k", units[i], false, w); err != nil && (w.leaves == 0 || !errors.Is(err, errGivesUp)) {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		ends.Wait()
	})
}

func notFor(after time.Duration) wait.Answer { return wait.Answer{After: after} }

func roomFor(n int) wait.Answer { return wait.Answer{Go: true, Room: n} }

func askedAt(t *testing.T, name string, w *acts, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(w.asked, want) {
		t.Errorf("%s asked at %v, want %v", name, w.asked, want)
	}
}

// TestOneWhoLeavesLetsThoseBehindAsk: who was called to ask and leaves does not keep those behind it, who fit into the
// same room, from asking while another one asks; nor does one who leaves before it was called.
func TestOneWhoLeavesLetsThoseBehindAsk(t *testing.T) {
	for name, leaves := range map[string]time.Duration{"called": 1030 * ms, "not yet called": 1010 * ms} {
		first := &acts{answers: []wait.Answer{notFor(time.Second), roomFor(8)}}
		slow := &acts{takes: []time.Duration{0, 10 * time.Second}, wakes: 20 * ms}
		slow.takes[0] = 10 * time.Second // a newcomer behind others does not ask before its turn
		gone := &acts{wakes: 50 * ms, leaves: leaves}
		last := &acts{wakes: ms}
		stand(t, []int{1, 1, 1, 1}, []*acts{first, slow, gone, last})
		if len(gone.asked) > 0 || len(last.asked) != 1 || last.asked[0] > 2*time.Second {
			t.Errorf("%s: the one that left asked at %v, the last one at %v", name, gone.asked, last.asked)
		}
	}
}

// TestCallsAreSeenOnce: who asks in the room that another one has left has seen the calls until then, and does not ask twice.
func TestCallsAreSeenOnce(t *testing.T) {
	first := &acts{answers: []wait.Answer{notFor(time.Second), roomFor(1)}}
	second := &acts{answers: []wait.Answer{notFor(time.Second)}}
	stand(t, []int{1, 1}, []*acts{first, second}, 300*ms)
	askedAt(t, "the first", first, 0, 300*ms)
	askedAt(t, "the second", second, 300*ms, 1300*ms)
}

// TestCallWhileItAsks: a line that is called while its first one asks asks again at once, whatever it has been denied before.
func TestCallWhileItAsks(t *testing.T) {
	first := &acts{answers: []wait.Answer{notFor(time.Second), notFor(time.Second)}, takes: []time.Duration{0, 100 * ms}}
	stand(t, []int{1}, []*acts{first}, 300*ms, 350*ms)
	askedAt(t, "the first", first, 0, 300*ms, 400*ms)
}

// TestThoseBehindLearnOfMore: one that arrived sooner, and whose first answer came late, is noticed by those behind it.
func TestThoseBehindLearnOfMore(t *testing.T) {
	late := &acts{answers: []wait.Answer{notFor(time.Second)}, takes: []time.Duration{50 * ms}}
	first := &acts{answers: []wait.Answer{notFor(20 * ms), notFor(time.Second)}}
	behind := &acts{}
	stand(t, []int{5, 1, 1}, []*acts{late, first, behind})
	if !slices.Equal(behind.units, []int{1, 6}) {
		t.Errorf("the last one heard of %v units before it, want 1 and then 6", behind.units)
	}
}

// TestRoomForTheFirst: the first one of a line, which was denied, asks at once where another one leaves room for it, whatever
// those wait for who do not fit.
func TestRoomForTheFirst(t *testing.T) {
	zero := &acts{answers: []wait.Answer{notFor(time.Second), roomFor(4)}}
	first := &acts{answers: []wait.Answer{notFor(10 * time.Second)}}
	small := &acts{answers: []wait.Answer{{Go: true, Room: 5, After: 5 * time.Second}}, wakes: 20 * ms}
	stand(t, []int{1, 3, 1}, []*acts{zero, first, small})
	askedAt(t, "the first", first, time.Second, 1020*ms)
}
