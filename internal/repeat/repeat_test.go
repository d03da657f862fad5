package repeat_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/repeat"
)

// runs returns a task of a second that notes when it runs.
func runs(t *testing.T, more func(run int) bool) (task *repeat.Task, at *[]time.Duration) {
	start := time.Now()
	at = new([]time.Duration)
	task = &repeat.Task{
		Every: time.Second,
		Start: func(f func(context.Context)) bool { f(t.Context()); return true },
		Run: func(context.Context) bool {
			*at = append(*at, time.Since(start))
			return more(len(*at))
		},
	}
	return task, at
}

// TestRunsWhileThereIsMore: a run each second, however often the task was begun, until there is
// nothing to do; and again when it is begun again.
func TestRunsWhileThereIsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task, at := runs(t, func(run int) bool { return run < 3 })
		task.Begin()
		task.Begin()
		time.Sleep(time.Minute)
		task.Begin()
		time.Sleep(time.Minute)
		synctest.Wait() // also for the race detector
		if want := []time.Duration{1e9, 2e9, 3e9, 61e9}; !slices.Equal(*at, want) {
			t.Errorf("runs at %v, want %v", *at, want)
		}
	})
}

// TestBeginDuringARun: what is there to be done since a run has begun is not forgotten, although
// that run says that there is no more.
func TestBeginDuringARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var task *repeat.Task
		task, at := runs(t, func(run int) bool {
			if run == 1 {
				task.Begin()
			}
			return false
		})
		task.Begin()
		time.Sleep(time.Minute)
		synctest.Wait() // also for the race detector
		if want := []time.Duration{1e9, 2e9}; !slices.Equal(*at, want) {
			t.Errorf("runs at %v, want %v", *at, want)
		}
	})
}

// TestLongRuns: runs are a period apart from begin to begin, and a tenth of it from end to begin.
func TestLongRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task, at := runs(t, func(run int) bool {
			time.Sleep(time.Duration(run) * 500 * time.Millisecond)
			return run < 3
		})
		task.Begin()
		time.Sleep(time.Minute)
		synctest.Wait() // also for the race detector
		if want := []time.Duration{1e9, 2e9, 3.1e9}; !slices.Equal(*at, want) {
			t.Errorf("runs at %v, want %v", *at, want)
		}
	})
}

// TestEnd: nothing runs after End, whether a run was due, is under way or is asked for.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var task *repeat.Task
		task, at := runs(t, func(run int) bool {
			task.End()
			return true
		})
		task.Begin()
		time.Sleep(time.Minute)
		task.Begin()
		time.Sleep(time.Minute)
		other, none := runs(t, func(int) bool { return true })
		other.Begin()
		other.End()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(*at) != 1 || len(*none) != 0 {
			t.Errorf("runs at %v and %v, want one and none", *at, *none)
		}
	})
}
