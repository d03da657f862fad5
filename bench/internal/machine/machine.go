// Package machine says on what, when and of what a table was measured.
package machine

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Watch notes the load of the machine from its making on, and how far apart two of its cores are.
type Watch struct {
	first float64
	apart time.Duration
}

// Load is the average number of processes that ran in the last minute; 0 where it is not
// known.
func Load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	load, _ := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	return load
}

// New returns a Watch.
func New() Watch { return Watch{Load(), apart()} }

// apart is how long a value takes from one core to another and back. The processors of a virtual machine
// may share a cache in one minute and not in the next one, and what several goroutines share, as callers of
// one key do, then takes up to twice the time. It is the least of some turns, because in others both
// begin on one core.
func apart() time.Duration {
	if runtime.GOMAXPROCS(0) < 2 {
		return 0
	}
	least := there()
	for range 4 {
		least = min(least, there())
	}
	return least
}

// there is apart in one turn.
func there() time.Duration {
	var at atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	start := time.Now()
	time.AfterFunc(10*time.Millisecond, func() { over.Store(true) })
	for me := range int64(2) {
		wg.Go(func() {
			for turn := me; !over.Load(); turn += 2 {
				for at.Load() != turn && !over.Load() { //nolint:revive // it is short
				}
				at.CompareAndSwap(turn, turn+1)
			}
		})
	}
	wg.Wait()
	return 2 * time.Since(start) / time.Duration(max(1, at.Load()))
}

// Line is the line that stands above a table: the command that measured it, the day, the
// commit, and the machine with its load before and after.
func (w Watch) Line(command string) string {
	return fmt.Sprintf("Measured by `%s` on %s at commit %s, %s, %d cores of %s, load %.1f before and %.1f after; from one core to another and back a value takes %v before and %v after.",
		command, time.Now().UTC().Format(time.DateOnly), commit(), runtime.Version(), runtime.NumCPU(), processor(), w.first, Load(), w.apart, apart())
}

// Publish prints a document with that line above it, and writes it to a file if there is one.
func (w Watch) Publish(file, command, text string) error {
	text = w.Line(command) + "\n\n" + text
	fmt.Print(text)
	if file == "" {
		return nil
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
