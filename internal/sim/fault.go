package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// FaultKind is what goes wrong.
type FaultKind int

// The kinds.
const (
	Refused FaultKind = iota
	BlackHole
	RepliesLost
	Far
	Reset
	Frozen
	Sluggish
	Rejecting
	RejectingWrites
	Restarted
	RestartedEmpty
	FailedOver
	Flushed
	Evicted
	ScriptsForgotten
	ClockSteps
	faultKinds
)

var faultNames = [faultKinds]string{
	"refused", "black hole", "replies lost", "far away", "reset", "frozen", "sluggish",
	"rejects all", "rejects writes", "restart", "restart without data", "failover", "FLUSHALL",
	"eviction", "SCRIPT FLUSH", "clock step",
}

// String names it.
func (k FaultKind) String() string { return faultNames[k] }

// Fault is one thing that goes wrong, for a while, for some processes.
type Fault struct {
	Kind FaultKind
	At   time.Duration // since the world began
	For  time.Duration
	// Of are the processes it concerns; nil is all. Faults of servers concern all.
	Of []int
	// Text is what a server answers.
	Text string
	// By is how far away it is, how slow, or by how much a clock steps.
	By time.Duration
}

// String says what happens.
func (f Fault) String() string {
	s := fmt.Sprintf("%v at %v for %v", f.Kind, f.At, f.For)
	if f.Of != nil {
		s += fmt.Sprintf(", processes %v", f.Of)
	}
	if f.Text != "" {
		s += fmt.Sprintf(", %q", f.Text)
	}
	if f.By != 0 {
		s += fmt.Sprintf(", by %v", f.By)
	}
	return s
}

var (
	rejections = []string{
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"NOAUTH Authentication required.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"ERR max number of clients reached",
	}
	writeRejections = []string{
		"OOM command not allowed when used memory > 'maxmemory'. script: 0, on @user_script:1.",
		"READONLY You can't write against a read only replica. script: 0, on @user_script:1.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. script: 0, on @user_script:1.",
		"NOREPLICAS Not enough good replicas to write. script: 0, on @user_script:1.",
	}
)

// drawEpisode draws faults that meet, or follow one another closely.
func drawEpisode(rng *rand.Rand, processes int, life time.Duration) (faults []Fault) {
	at := 5*time.Second + time.Duration(rng.Int64N(int64(life-30*time.Second)))
	for range 1 + rng.IntN(4) {
		f := drawFault(rng, processes)
		f.At = min(at, life-20*time.Second)
		f.For = min(f.For, life-20*time.Second-f.At)
		faults = append(faults, f)
		if rng.IntN(2) == 0 {
			at += f.For
		}
		at += between(rng, time.Millisecond, 10*time.Second)
	}
	return faults
}

// between draws a time of any order of magnitude.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), rng.Float64()))
}

func drawFault(rng *rand.Rand, processes int) Fault {
	f := Fault{Kind: FaultKind(rng.IntN(int(faultKinds))), For: between(rng, time.Millisecond, 40*time.Second)}
	if rng.IntN(3) == 0 && processes > 1 {
		f.Of = rng.Perm(processes)[:1+rng.IntN(processes-1)]
	}
	switch f.Kind {
	case Far, Sluggish:
		f.By = time.Duration(rng.ExpFloat64() * float64(20*time.Millisecond))
		if f.Kind == Sluggish {
			f.By /= 20
		}
	case Rejecting:
		f.Text = rejections[rng.IntN(len(rejections))]
	case RejectingWrites:
		f.Text = writeRejections[rng.IntN(len(writeRejections))]
	case ClockSteps:
		f.By = time.Duration((rng.Float64()*2 - 1) * float64(time.Hour))
		if rng.IntN(3) == 0 {
			f.By *= 24
		}
		f.By = f.By.Round(time.Microsecond)
	}
	return f
}

// inject lets a fault happen.
func (w *World) inject(f Fault, rng *rand.Rand) {
	time.Sleep(f.At + time.Duration(rng.Int64N(1000)))
	s := w.servers[0]
	w.ledger.fault("%v", f)
	of := f.Of
	if of == nil {
		for i := range w.processes {
			of = append(of, i)
		}
	}
	paths := func(change func(*Path)) {
		for _, i := range of {
			w.net.set(w.processes[i].name, s.addr, change)
		}
	}
	end := func() {}
	switch f.Kind {
	case Refused:
		paths(func(p *Path) { p.Refused = true })
		end = func() { paths(func(p *Path) { p.Refused = false }) }
	case BlackHole:
		paths(func(p *Path) { p.Lost = true })
		end = func() { paths(func(p *Path) { p.Lost = false }) }
	case RepliesLost:
		paths(func(p *Path) { p.RepliesLost = true })
		end = func() { paths(func(p *Path) { p.RepliesLost = false }) }
	case Far:
		paths(func(p *Path) { p.Delay += f.By; p.Jitter += f.By / 2 })
		end = func() { paths(func(p *Path) { p.Delay -= f.By; p.Jitter -= f.By / 2 }) }
	case Reset:
		paths(func(p *Path) { p.Refused = true })
		paths(func(p *Path) { p.Refused = false })
	case Frozen:
		s.set(func(h *Health) { h.Frozen = true })
		end = func() { s.set(func(h *Health) { h.Frozen = false }) }
	case Sluggish:
		s.set(func(h *Health) { h.Slow += f.By })
		end = func() { s.set(func(h *Health) { h.Slow -= f.By }) }
	case Rejecting:
		s.set(func(h *Health) { h.Rejects = f.Text })
		end = func() { s.set(func(h *Health) { h.Rejects = "" }) }
	case RejectingWrites:
		s.set(func(h *Health) { h.RejectsWrites = f.Text })
		end = func() { s.set(func(h *Health) { h.RejectsWrites = "" }) }
	case Restarted, RestartedEmpty:
		s.set(func(h *Health) { h.Down = true })
		s.crash()
		end = func() {
			if f.Kind == RestartedEmpty {
				s.lose(func(string) bool { return true })
			}
			s.forgetScripts()
			s.set(func(h *Health) { h.Down = false })
		}
	case FailedOver:
		s.save()
		end = func() {
			s.crash()
			s.restore()
		}
	case Flushed:
		s.lose(func(string) bool { return true })
	case Evicted:
		s.lose(func(string) bool { return rng.IntN(3) == 0 })
	case ScriptsForgotten:
		s.forgetScripts()
	case ClockSteps:
		w.mu.Lock()
		w.stepped = append(w.stepped, w.now())
		w.mu.Unlock()
		s.step(f.By)
		end = func() {}
	}
	time.Sleep(f.For)
	end()
	w.ledger.fault("over: %v", f)
}
