// Package repeat runs what must happen again and again while there is something to do:
// heartbeats, sweeps and reports.
package repeat

import (
	"context"
	"sync"
	"time"
)

// Task runs a function about once in a period, as long as there is more to do. Between the runs
// it has a timer and no goroutine, and afterwards neither. It is safe for concurrent use. The
// fields do not change once Begin was called.
type Task struct {
	Every time.Duration
	// Start runs a function in the background, unless that is over.
	Start func(func(context.Context)) bool
	// Run does what is to be done, and reports whether there is more to do.
	Run func(context.Context) (more bool)

	mu    sync.Mutex
	timer *time.Timer // nil while no run is due or under way
	again bool        // Begin was called since the run began
	ended bool
}

// Begin makes sure that a run begins after now.
func (t *Task) Begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.again = true
	if t.timer == nil {
		t.schedule(t.Every)
	}
}

// Always runs a function now and about once in each period, until the end.
func Always(every time.Duration, start func(func(context.Context)) bool, run func(context.Context)) *Task {
	t := &Task{Every: every, Start: start, Run: func(ctx context.Context) bool {
		run(ctx)
		return true
	}}
	t.Start(t.run)
	return t
}

// End ends the runs that are still to come, for good.
func (t *Task) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.timer != nil {
		t.timer.Stop()
	}
}

// schedule sets the timer. mu is held.
func (t *Task) schedule(d time.Duration) {
	if !t.ended {
		t.timer = time.AfterFunc(d, func() { t.Start(t.run) })
	}
}

// run does it once. The next run begins a period after this one, but leaves at least a tenth of
// it free.
func (t *Task) run(ctx context.Context) {
	begin := time.Now()
	t.mu.Lock()
	t.again = false
	t.mu.Unlock()
	more := t.Run(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = nil
	if more || t.again {
		t.schedule(max(t.Every/10, t.Every-time.Since(begin)))
	}
}
