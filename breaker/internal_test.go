package breaker

import (
	"strings"
	"testing"
	"time"
)

// When the open time ends, many callers find the gate open and meet at the lock.
// The first is the probe; the others must not take it for an overdue one.
func TestLateCallersDoNotEndTheProbe(t *testing.T) {
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
func TestRejectingTakesNoLock(t *testing.T) {
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

// Whatever a server puts in front of its words, what is removed is removed for good,
// and what is left ends the text.
func FuzzInnerText(f *testing.F) {
	for _, text := range []string{
		"ERR Error running script (call to f_1f2e): @user_script:3: @user_script: 3: -OOM command not allowed",
		"ERR running script (call to f_1f2e): user_script:12: READONLY You can't write against a read only slave.",
		"ERR ERR -ERR OOM", "@user_script: 12", "Error running script", "running script: running script: ", "@user_script:: -", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		inner := innerText(text)
		if !strings.HasSuffix(text, inner) {
			t.Errorf("%q is not the end of %q", inner, text)
		}
		if again := innerText(inner); again != inner {
			t.Errorf("of %q is left %q, and of that %q", text, inner, again)
		}
	})
}
