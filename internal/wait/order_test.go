package wait_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/wait"
)

// late is denied until a given moment; its first answer takes longer than that of others.
type late struct {
	asks
	first time.Duration
	asked *bool
	until time.Time
	goes  func()
}

func (w late) Ask() (wait.Answer, error) {
	if !*w.asked {
		*w.asked = true
		time.Sleep(w.first)
		return wait.Answer{After: time.Until(w.until)}, nil
	}
	w.goes()
	return wait.Answer{Go: true}, nil
}

// TestFirstAnswersDoNotOvertake: of callers that asked before there was a line, the one whose
// answer comes first does not go before those that arrived earlier.
func TestFirstAnswersDoNotOvertake(t *testing.T) {
	for _, ends := range [][]int{ // of the first answers, by arrival
		{8, 7, 6, 5, 4, 3, 2, 1},
		{1, 2, 3, 4, 5, 6, 7, 8},
		{1, 8, 7, 3, 6, 2, 5, 4},
		{2, 1, 8, 4, 5, 3, 7, 6},
	} {
		overtaken(t, ends)
	}
}

func overtaken(t *testing.T, ends []int) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var lines wait.Lines[string]
		var all sync.WaitGroup
		var mu sync.Mutex
		var order []int
		for i, end := range ends {
			all.Go(func() {
				goes := func() { // callers who go at one time go on in any order
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
				}
				w := late{first: time.Duration(end) * 10 * time.Millisecond, asked: new(bool), until: start.Add(time.Second), goes: goes}
				if err := lines.Wait("k", 1, false, w); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("served in the order %v of their arrival", order)
		}
	})
}

// slow goes on so long after it was called, and may leave before.
type slow struct {
	wakes time.Duration
	left  <-chan time.Time // nil is never
	asked *bool
	until time.Time
	first time.Duration
	goes  func() wait.Answer
}

func (w slow) Ask() (wait.Answer, error) {
	if !*w.asked {
		*w.asked = true
		time.Sleep(w.first)
		return wait.Answer{After: time.Until(w.until)}, nil
	}
	return w.goes(), nil
}

func (w slow) Queue(int, time.Duration) error { return nil }

func (w slow) Sleep(d time.Duration, called <-chan struct{}) error {
	var over <-chan time.Time
	if d >= 0 {
		over = time.After(d)
	}
	select {
	case <-over:
	case <-called:
		time.Sleep(w.wakes)
	case <-w.left:
		return errGivesUp
	}
	return nil
}

// TestThoseWhoAskTogetherAskInTurn: where an answer leaves room for several, they ask by their arrival, however long
// each takes to go on when it is called: also if one of them leaves, or if one comes between them whose first answer is late.
func TestThoseWhoAskTogetherAskInTurn(t *testing.T) {
	for _, c := range []struct{ leaves, late int }{{-1, -1}, {3, -1}, {-1, 3}, {5, 2}} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var lines wait.Lines[string]
			var all sync.WaitGroup
			var order []int
			const n = 8
			for i := range n {
				w := slow{wakes: time.Duration(n-i) * 10 * time.Millisecond, asked: new(bool), until: start.Add(time.Second), goes: func() wait.Answer {
					order = append(order, i) // one at a time, because each wakes at a time of its own
					return wait.Answer{Go: true, Room: n}
				}}
				if i == c.leaves {
					w.left = time.After(1020 * time.Millisecond) // the second has been called
				}
				if i == c.late {
					w.first = 1015 * time.Millisecond
				}
				all.Go(func() {
					if err := lines.Wait("k", 1, false, w); err != nil && i != c.leaves {
						t.Error(err)
					}
				})
				time.Sleep(time.Millisecond)
			}
			all.Wait()
			want := n
			if c.leaves >= 0 {
				want--
			}
			if !slices.IsSorted(order) || len(order) != want {
				t.Errorf("%+v: asked in the order %v of their arrival", c, order)
			}
		})
	}
}
