package breaker

import (
	"testing"
	"time"
)

// When the open time ends, many callers find the gate open and meet at the lock.
// The first is the probe; the others must not take it for an overdue one.
func TestLateComersLeaveTheProbeAlone(t *testing.T) {
	b, err := New(Settings{MinRequests: 1, OpenMin: time.Millisecond, OpenMax: time.Millisecond, ProbeTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := b.Acquire()
	p.Done(ClassUnavailable, 0)
	<-time.After(2 * time.Millisecond)
	b.mu.Lock()
	first, second := b.admit(), b.admit()
	b.mu.Unlock()
	if first == nil || second != nil {
		t.Errorf("admitted %v and %v", first != nil, second != nil)
	}
	if s := b.Snapshot(); s.State != HalfOpen || s.Opens != 1 {
		t.Errorf("%+v", s)
	}
}

// A refusal must not wait for anyone, not even for the lock.
func TestRefusalTakesNoLock(t *testing.T) {
	b, err := New(Settings{OpenMin: time.Hour, OpenMax: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		p, _ := b.Acquire()
		p.Done(ClassUnavailable, 0)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	refused := make(chan bool)
	go func() {
		_, ok := b.Acquire()
		refused <- !ok
	}()
	select {
	case got := <-refused:
		if !got {
			t.Error("let through while open")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("waits for the lock")
	}
}
