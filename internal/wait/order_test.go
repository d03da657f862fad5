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
