// Redis measures decisions through Redis: Holdfast next to others, in one run, on a
// redis-server that it starts. All take turns in every round; the figures are
// medians. Denials are decisions too. Errors are counted, and so is what was
// admitted beyond the limit.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/bench/internal/machine"
	"github.com/holdfast-go/holdfast/internal/redisproc"
)

// bench is the server and how long to measure.
type bench struct {
	srv    *redisproc.Server
	admin  *redis.Client
	rounds int
	length time.Duration
	made   int
}

func main() {
	out := flag.String("out", "", "directory to write redis.md, throughput.md and redis.svg to")
	rounds := flag.Int("rounds", 7, "rounds, in each of which all take a turn")
	length := flag.Duration("turn", 400*time.Millisecond, "length of a turn")
	only := flag.String("only", "", "only the contenders whose name contains this, and the plain one")
	loadsOf := flag.String("load", "", "only the loads whose name contains this")
	flag.Parse()
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if err := run(*out, *only, *loadsOf, *rounds, *length); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
}

var loads = []load{
	{name: "1 caller", callers: 1, keys: 10_000, limit: usual},
	{name: "8 callers", callers: 8, keys: 10_000, limit: usual},
	{name: "64 callers", callers: 64, keys: 10_000, limit: usual},
	{name: "512 callers", callers: 512, keys: 10_000, limit: usual},
	{name: "512 callers, one key", callers: 512, keys: 1, limit: high},
	{name: "512 callers, one key, contexts that can end", callers: 512, keys: 1, limit: high, cancellable: true},
	{name: "512 callers, one key, most denied", callers: 512, keys: 1, limit: 2000},
	{name: "8 callers, 2 ms away", callers: 8, keys: 10_000, limit: usual, away: 2 * time.Millisecond},
	{name: "512 callers, 2 ms away", callers: 512, keys: 10_000, limit: usual, away: 2 * time.Millisecond},
	{name: "2,048 callers, 2 ms away", callers: 2048, keys: 10_000, limit: usual, away: 2 * time.Millisecond},
	{name: "512 callers, 8 ms away", callers: 512, keys: 10_000, limit: usual, away: 8 * time.Millisecond},
}

// chosen are the loads of docs/throughput.md.
var chosen = []string{"1 caller", "8 callers", "64 callers", "512 callers", "512 callers, one key", "512 callers, 2 ms away"}

// noisy is the ratio of the plain client's rates in two rounds of a load from which a run
// says more of the machine than of what runs on it.
const noisy = 2

func run(out, only, loadsOf string, rounds int, length time.Duration) error {
	srv, err := redisproc.Start(redisproc.Options{})
	if err != nil {
		return err
	}
	defer srv.Close()
	b := &bench{srv: srv, admin: redis.NewClient(&redis.Options{Addr: srv.Addr()}), rounds: rounds, length: length}
	defer b.admin.Close()
	watch := machine.New()

	var doc bytes.Buffer
	list := matching(contenders, only)
	charted := map[string][]result{}
	var unsteady []string
	for _, l := range loads {
		if !strings.Contains(l.name, loadsOf) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s ...\n", l.name)
		results, err := measure(b, l.of(list), l)
		if err != nil {
			return err
		}
		charted[l.name] = results
		if results[0].spread > noisy {
			unsteady = append(unsteady, fmt.Sprintf("%s (%.1f)", l.name, results[0].spread))
		}
		table(&doc, l, l.of(list), results)
		if floor := b.floor(l); floor > 0 {
			fmt.Fprintf(&doc, "redis-benchmark with the plain script: %.0f/s.\n\n", floor)
		}
	}
	eight := load{name: "64 callers, by algorithm", callers: 64, keys: 10_000, limit: usual}
	if only == "" && strings.Contains(eight.name, loadsOf) {
		fmt.Fprintf(os.Stderr, "%s ...\n", eight.name)
		results, err := measure(b, algorithms, eight)
		if err != nil {
			return err
		}
		table(&doc, eight, algorithms, results)
	}
	here := load{name: "512 callers, one key, a limit that is not reached", callers: 512, keys: 1, limit: 100 * high}
	if only == "" && strings.Contains(here.name, loadsOf) {
		results, err := measure(b, inProcess, here)
		if err != nil {
			return err
		}
		table(&doc, here, inProcess, results)
	}
	if loadsOf == "" {
		if err := b.memory(&doc, append(append([]contender{}, list...), algorithms[1:]...)); err != nil {
			return err
		}
		if err := b.early(&doc); err != nil {
			return err
		}
		if err := b.fair(&doc); err != nil {
			return err
		}
	}
	if only == "" && strings.Contains("10,000 callers", loadsOf) {
		if err := b.crowd(&doc); err != nil {
			return err
		}
	}
	head := watch.Line("make bench-redis")
	if len(unsteady) > 0 {
		head += fmt.Sprintf("\n\nToo noisy to publish: the plain client's rates differ by more than %d times between rounds of %s.", noisy, strings.Join(unsteady, ", "))
	}
	fmt.Println(head + "\n\n" + doc.String())
	if out == "" || loadsOf != "" || only != "" {
		return nil // what is written is whole
	}
	if len(unsteady) > 0 {
		return errors.New("too noisy to publish: nothing was written")
	}
	for name, text := range map[string][]byte{
		"redis.md":      []byte(head + "\n\n" + doc.String()),
		"throughput.md": []byte(head + "\n\n" + summary(list, charted)),
		"redis.svg":     chart(list, charted),
	} {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// table writes one load's results.
func table(doc *bytes.Buffer, l load, list []contender, results []result) {
	fmt.Fprintf(doc, "**%s**\n\n", l.name)
	doc.WriteString("| | decisions/s | × plain | least and most | p50 | p99 | p99.9 | allocations | switches | CPU client | CPU server | denied | errors | over |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i, r := range results {
		fmt.Fprintf(doc, "| %s | %.0f | %.2f | %.2f–%.2f | %v | %v | %v | %.1f | %.2f | %v | %v | %.1f %% | %d | %d |\n", list[i].name, r.rate, r.ratio(), r.times[0], r.times[len(r.times)-1],
			short(r.p50), short(r.p99), short(r.p999), r.allocs, r.switches, short(r.client), short(r.server), 100*r.denied, r.errors, r.over)
	}
	doc.WriteString("\n")
	for i, r := range results {
		if r.lastErr != nil {
			fmt.Fprintf(doc, "%s: %v\n\n", list[i].name, r.lastErr)
		}
	}
}

// summary is decisions per second as multiples of the plain client's, under the chosen loads.
func summary(list []contender, of map[string][]result) string {
	var b bytes.Buffer
	b.WriteString("| × plain |")
	for _, c := range list[1:] {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(list)-1) + "\n")
	for _, l := range loads {
		if !slices.Contains(chosen, l.name) {
			continue
		}
		taking := l.of(list)
		fmt.Fprintf(&b, "| %s |", l.name)
		for _, c := range list[1:] {
			i := slices.IndexFunc(taking, func(t contender) bool { return t.name == c.name })
			if i < 0 {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(&b, " %.2f |", of[l.name][i].ratio())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// memory writes what Redis keeps per key.
func (b *bench) memory(doc *bytes.Buffer, list []contender) error {
	doc.WriteString("**Redis memory of a key used once**\n\n| | bytes |\n|---|---|\n")
	for _, c := range list {
		n, err := b.bytesPerKey(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Fprintf(doc, "| %s | %.0f |\n", c.name, n)
	}
	doc.WriteString("\n")
	return nil
}

// floor is what redis-benchmark does with the plain script; 0 without it.
func (b *bench) floor(l load) float64 {
	path, err := exec.LookPath("redis-benchmark")
	if err != nil || l.away > 0 || l.cancellable || l.limit == 2000 {
		return 0
	}
	sha, err := b.admin.ScriptLoad(context.Background(), plainScript).Result()
	if err != nil {
		return 0
	}
	out, err := exec.Command(path, "-p", strconv.Itoa(b.srv.Port()), "-c", strconv.Itoa(l.callers), "-n", "50000", "-r", strconv.Itoa(l.keys), "--csv",
		"evalsha", sha, "1", "floor:__rand_int__", "1", strconv.Itoa(high)).Output()
	if err != nil {
		return 0
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fields := strings.Split(lines[len(lines)-1], "\",\"")
	if len(fields) < 2 {
		return 0
	}
	rate, _ := strconv.ParseFloat(strings.Trim(fields[1], "\""), 64)
	return rate
}

// serverCPU is the time that the server has used.
func (b *bench) serverCPU() time.Duration {
	info, err := b.admin.Info(context.Background(), "cpu").Result()
	if err != nil {
		return 0
	}
	var sum float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			s, _ := strconv.ParseFloat(value, 64)
			sum += s
		}
	}
	return time.Duration(sum * float64(time.Second))
}

func short(d time.Duration) time.Duration {
	switch {
	case d > 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d > 10*time.Microsecond:
		return d.Round(time.Microsecond)
	}
	return d.Round(10 * time.Nanosecond)
}
