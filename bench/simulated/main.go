// Simulated measures what the simulator of fleets costs: processor time and memory, of the
// fleets that are simulated on each push. It prints a table in Markdown, and writes it to a
// file when it is given one.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/machine"
)

func main() {
	out := flag.String("out", "", "file to write the table to")
	rounds := flag.Int("rounds", 5, "how often the fleets are simulated")
	sim := flag.String("sim", "../internal/sim", "the directory of the simulator")
	flag.Parse()
	if err := run(*out, *sim, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "simulated:", err)
		os.Exit(1)
	}
}

// cost is that of one run.
type cost struct {
	fleets, hours, decisions float64
	took, cpu                time.Duration
	memory                   int64 // at most, in KiB
}

func run(out, sim string, rounds int) error {
	watch := machine.New()
	dir, err := os.MkdirTemp("", "simulated")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "sim.test")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Dir = sim
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	var all []cost
	for range rounds {
		c, err := simulate(program, sim)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	one := all[0]
	return watch.Publish(out, "make bench-simulated", fmt.Sprintf(
		"The %.0f fleets from seed 1, which each push simulates: %.1f fleet-hours, %.0f decisions. Median of %d runs, with the least and the most:\n\n"+
			"| | median | least | most |\n|---|---|---|---|\n%s%s%s%s", one.fleets, one.hours, one.decisions, rounds,
		row("seconds per fleet-hour", "%.3f", all, func(c cost) float64 { return c.took.Seconds() / c.hours }),
		row("fleet-hours per hour of a processor", "%.0f", all, func(c cost) float64 { return c.hours / c.cpu.Hours() }),
		row("µs of a processor per decision", "%.1f", all, func(c cost) float64 { return float64(c.cpu.Microseconds()) / c.decisions }),
		row("MiB of memory at most", "%.0f", all, func(c cost) float64 { return float64(c.memory) / 1024 })))
}

// last is the first of the lines that the simulation ends with.
var last = regexp.MustCompile(`(\d+) fleets from seed \d+ to \d+, ([\d.]+) fleet-hours, (\d+) decisions`)

func simulate(program, dir string) (c cost, err error) {
	cmd := exec.Command(program, "-test.run", "TestSimulate$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SEED=1", "SIM=", "FLEETS=")
	began := time.Now()
	said, err := cmd.CombinedOutput()
	c.took = time.Since(began)
	if err != nil {
		return c, fmt.Errorf("%w: %s", err, said)
	}
	found := last.FindSubmatch(said)
	if found == nil {
		return c, fmt.Errorf("it does not say what it has simulated: %s", said)
	}
	for i, to := range []*float64{&c.fleets, &c.hours, &c.decisions} {
		if *to, err = strconv.ParseFloat(string(found[i+1]), 64); err != nil {
			return c, err
		}
	}
	c.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.memory = usage.Maxrss
	}
	return c, nil
}

func row(name, format string, all []cost, of func(cost) float64) string {
	var values []float64
	for _, c := range all {
		values = append(values, of(c))
	}
	slices.Sort(values)
	n := len(values)
	return fmt.Sprintf("| %s | "+format+" | "+format+" | "+format+" |\n", name, values[n/2], values[0], values[n-1])
}
