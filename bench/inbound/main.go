// Inbound measures what middlewares that limit by the address of the client add to a
// bare handler: in memory, by one caller and by one per core, and in a server on the
// loopback; for requests that are served and for those that are rejected. Then what it
// observing each decision adds. All take turns in every round; the
// tables have medians.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/machine"
)

func main() {
	out := flag.String("out", "", "file to write the tables to")
	rounds := flag.Int("rounds", 15, "rounds, in each of which all take a turn")
	flag.Parse()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if err := run(*out, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "inbound:", err)
		os.Exit(1)
	}
}

func run(out string, rounds int) error {
	watch := machine.New()
	served, err := compare(rounds, plenty, http.StatusOK)
	if err != nil {
		return err
	}
	rejected, err := compare(rounds, 1, http.StatusTooManyRequests)
	if err != nil {
		return err
	}
	observed, err := compareObserved(rounds)
	if err != nil {
		return err
	}

	var b strings.Builder
	fmt.Fprintf(&b, "**Served**: %d requests an hour for each of %d clients, which is not reached\n\n%s\n", plenty, clients, served)
	fmt.Fprintf(&b, "**Rejected**: 1 request an hour, which each client has had; the bare handler serves them\n\n%s\n", rejected)
	fmt.Fprintf(&b, "**Observed**: what observing each decision adds to Holdfast, GCRA\n\n%s", observed)
	return watch.Publish(out, "make bench-inbound", b.String())
}

// compare measures all contenders with a limit of n requests of a client an hour, which
// makes those that limit answer with status.
func compare(rounds, n, status int) (table string, err error) {
	want := func(i int) int {
		if i == 0 {
			return http.StatusOK
		}
		return status
	}
	names, memory, server := make([]string, len(contenders)), make([]http.Handler, len(contenders)), make([]http.Handler, len(contenders))
	for i, c := range contenders {
		names[i] = title(c.name, c.module)
		for _, hs := range [][]http.Handler{memory, server} {
			if hs[i], err = c.wrap(bare, n); err != nil {
				return "", fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	one, all, err := inMemory(names, memory, rounds, want)
	if err != nil {
		return "", err
	}
	wire, err := onLoopback(names, server, rounds, want)
	if err != nil {
		return "", err
	}

	var b strings.Builder
	fmt.Fprintf(&b, "| middleware | adds, ns | on %d cores | adds, allocations | adds, bytes | on the loopback | sends |\n", runtime.GOMAXPROCS(0))
	b.WriteString("|---|---|---|---|---|---|---|\n")
	for i, name := range names {
		look := newCallers(1)[0]
		look.send(memory[i])
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %v (× %.2f) | %s |\n", name,
			adds(one[i].NS, one[0].NS), adds(all[i].NS, all[0].NS),
			adds(one[i].Allocs, one[0].Allocs), adds(one[i].Bytes, one[0].Bytes),
			time.Duration(wire[i].NS).Round(100*time.Nanosecond), wire[i].NS/wire[0].NS,
			sent(&look.w))
	}
	return b.String(), nil
}

// compareObserved measures all observers, of requests that are served and of those that
// are rejected.
func compareObserved(rounds int) (table string, err error) {
	served, servedAll, err := observe(rounds, plenty, http.StatusOK)
	if err != nil {
		return "", err
	}
	rejected, rejectedAll, err := observe(rounds, 1, http.StatusTooManyRequests)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| observed by | served: adds, ns | on %[1]d cores | adds, allocations | rejected: adds, ns | on %[1]d cores | adds, allocations |\n", runtime.GOMAXPROCS(0))
	b.WriteString("|---|---|---|---|---|---|---|\n")
	for i, o := range observers {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", title(o.name, o.module),
			adds(served[i].NS, served[0].NS), adds(servedAll[i].NS, servedAll[0].NS), adds(served[i].Allocs, served[0].Allocs),
			adds(rejected[i].NS, rejected[0].NS), adds(rejectedAll[i].NS, rejectedAll[0].NS), adds(rejected[i].Allocs, rejected[0].Allocs))
	}
	return b.String(), nil
}

// adds is how much more than the base, in whole numbers; what is less is noise.
func adds(v, base float64) string { return fmt.Sprint(int(max(0, math.Round(v-base)))) }

func sent(w *response) string {
	return fmt.Sprintf("%d headers, %d B", len(w.header), w.length)
}
