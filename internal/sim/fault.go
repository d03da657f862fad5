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
	Migrated
	Paused
	// SentinelsReject is for fleets that ask sentinels: one of them or more reject connections, and end those
	// that there are.
	SentinelsReject
	// Narrow is a network that carries little.
	Narrow
	ClockDrifts
	faultKinds
	// drawnKinds are those that every server can have.
	drawnKinds = Migrated
)

var faultNames = [faultKinds]string{
	"refused", "black hole", "replies lost", "far away", "reset", "frozen", "sluggish",
	"rejects all", "rejects writes", "restart", "restart without data", "failover", "FLUSHALL",
	"eviction", "SCRIPT FLUSH", "clock step", "slots migrate", "processes stand still", "sentinels reject",
	"narrow", "clock drift",
}

// String names it.
func (k FaultKind) String() string { return faultNames[k] }

// forgets reports that Redis may not know the processes any more after it.
func (k FaultKind) forgets() bool {
	switch k {
	case RestartedEmpty, FailedOver, Flushed, Evicted, ClockSteps:
		return true
	}
	return false
}

// Fault is one thing that goes wrong, for a while, for some processes.
type Fault struct {
	Kind FaultKind
	At   time.Duration // since the world began
	For  time.Duration
	// Of are the processes it concerns; nil is all. Faults of servers concern all.
	Of []int
	// On is the server, by its number; -1 is all. Slots migrate to it.
	On int
	// Text is what a server answers.
	Text string
	// By is how far away it is, how slow, by how much a clock steps, or gains in a second, how long a kibibyte is
	// on its way, or in which last part of For sentinels learn of a failover.
	By time.Duration
}

// String says what happens.
func (f Fault) String() string {
	s := fmt.Sprintf("%v at %v for %v", f.Kind, f.At, f.For)
	if f.Of != nil {
		s += fmt.Sprintf(", processes %v", f.Of)
	}
	if f.On != 0 {
		s += fmt.Sprintf(", server %d", f.On)
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
	f := Fault{Kind: FaultKind(rng.IntN(int(drawnKinds))), For: between(rng, time.Millisecond, 40*time.Second)}
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
