package breaker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

// fails is what one call came to.
type fails struct {
	class breaker.Class
	asked breaker.Proof
}

// TestWhatAnAnswerProves: a failure is over when an answer proves what had failed. One
// that proves less is neutral: it does not interrupt failures while the breaker is
// closed, and does not close it as a probe.
func TestWhatAnAnswerProves(t *testing.T) {
	for name, c := range map[string]struct {
		fails fails
		over  [3]bool // by an answer that proves a write, a run, a read
	}{
		"writes are rejected": {fails{breaker.ClassReadOnly, breaker.ProofRun}, [3]bool{true, false, false}},
		"no answer":           {fails{breaker.ClassSlow, breaker.ProofRun}, [3]bool{true, true, false}},
		"unavailable":         {fails{breaker.ClassUnavailable, breaker.ProofRun}, [3]bool{true, true, false}},
		"no answer to a peek": {fails{breaker.ClassSlow, breaker.ProofRead}, [3]bool{true, true, true}},
	} {
		for proof, over := range c.over {
			t.Run(name+", then "+[]string{"a charge", "a denial", "a peek"}[proof], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBreaker(t, breaker.Settings{MinRequests: 1000})
					report := func(class breaker.Class, proof breaker.Proof) {
						p, ok := b.Acquire()
						if !ok {
							t.Fatal("refused")
						}
						p.Report(class, proof, 0)
					}
					// Closed: as many failures as open it, with answers in between.
					for range 10 {
						report(c.fails.class, c.fails.asked)
						if b.Snapshot().State == breaker.Closed {
							report(breaker.ClassOK, breaker.Proof(proof))
						}
					}
					if open := b.State() == breaker.Open; open == over {
						t.Errorf("open is %v after failures between which it answered", open)
					}
					if over {
						for range 10 {
							report(c.fails.class, c.fails.asked)
						}
					}
					// As a probe.
					time.Sleep(time.Minute)
					report(breaker.ClassOK, breaker.Proof(proof))
					if closed := b.State() == breaker.Closed; closed != over {
						t.Errorf("closed is %v after a probe", closed)
					}
					report(breaker.ClassOK, breaker.ProofWrite)
					if b.State() != breaker.Closed {
						t.Error("a write does not close it")
					}
				})
			})
		}
	}
}

// TestDoubtEnds: ten slow answers in a day of denials do not open the breaker, although
// a write was rejected in the morning.
func TestDoubtEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		done := func(class breaker.Class) {
			p, ok := b.Acquire()
			if !ok {
				t.Fatal("refused")
			}
			p.Report(class, breaker.ProofRun, 0)
		}
		done(breaker.ClassReadOnly)
		for range 20 {
			for range 100 {
				time.Sleep(time.Minute)
				done(breaker.ClassOK)
			}
			done(breaker.ClassSlow)
		}
		if b.Snapshot().Opens > 0 {
			t.Error("it opened")
		}
	})
}

// TestFailuresOfSeveralKinds: of failures within a window of each other, the one that takes more to be
// over is not over before; of those before it, or of what is over, nothing is left.
func TestFailuresOfSeveralKinds(t *testing.T) {
	const window = 10 * time.Second
	for name, c := range map[string]struct {
		first  func(report func(breaker.Class, breaker.Proof))
		pause  time.Duration
		closed bool // with denials between slow calls
	}{
		"slow calls alone": {func(func(breaker.Class, breaker.Proof)) {}, 0, true},
		"a rejected write": {func(report func(breaker.Class, breaker.Proof)) {
			report(breaker.ClassReadOnly, breaker.ProofRun)
		}, 0, false},
		"a rejected write, a window ago": {func(report func(breaker.Class, breaker.Proof)) {
			report(breaker.ClassReadOnly, breaker.ProofRun)
		}, window, false},
		"a rejected write, longer ago": {func(report func(breaker.Class, breaker.Proof)) {
			report(breaker.ClassReadOnly, breaker.ProofRun)
		}, window + 1, true},
		"a rejected write that is over": {func(report func(breaker.Class, breaker.Proof)) {
			report(breaker.ClassReadOnly, breaker.ProofRun)
			report(breaker.ClassOK, breaker.ProofWrite)
		}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, breaker.Settings{MinRequests: 1000, Window: window})
				report := func(class breaker.Class, proof breaker.Proof) {
					if p, ok := b.Acquire(); ok {
						p.Report(class, proof, 0)
					}
				}
				c.first(report)
				time.Sleep(c.pause)
				for range 10 {
					report(breaker.ClassOK, breaker.ProofRun)
					report(breaker.ClassSlow, breaker.ProofRun)
				}
				if closed := b.State() == breaker.Closed; closed != c.closed {
					t.Errorf("closed is %v", closed)
				}
			})
		})
	}
}

// TestDoneProvesEverything, also that writes are accepted again.
func TestDoneProvesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Settings{})
		results(t, b, 10, breaker.ClassReadOnly)
		sleepOpen(t, b)
		acquire(t, b).Done(breaker.ClassOK, 0)
		isState(t, b, breaker.Closed)
	})
}
