// Http measures what retrying transports add to a request that succeeds: against
// a base in memory, which shows their own cost alone, and against the bare
// http.Transport on the loopback. All take turns in every round; the table has
// medians.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/machine"
)

func main() {
	out := flag.String("out", "", "file to write the table to")
	rounds := flag.Int("rounds", 15, "rounds, in each of which all take a turn")
	flag.Parse()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if err := run(*out, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(1)
	}
}

func run(out string, rounds int) error {
	watch := machine.New()
	memory, err := measure(inMemory(), rounds, 100_000)
	if err != nil {
		return err
	}
	real, closeReal := loopback()
	defer closeReal()
	wire, err := measure(real, rounds, 2_000)
	if err != nil {
		return err
	}
	small, err := bodyCost(1 << 10)
	if err != nil {
		return err
	}
	large, err := bodyCost(16 << 20)
	if err != nil {
		return err
	}

	var b strings.Builder
	b.WriteString("| transport | adds, ns | adds, allocations | adds, bytes | on the loopback | bytes for a body of 1 KiB | of 16 MiB |\n")
	b.WriteString("|---|---|---|---|---|---|---|\n")
	bare := memory[0]
	for i, c := range contenders {
		m := memory[i]
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %.0f | %v (× %.2f) | %s | %s |\n", c.name,
			max(0, m.NS-bare.NS), m.Allocs-bare.Allocs, m.Bytes-bare.Bytes,
			time.Duration(wire[i].NS).Round(100*time.Nanosecond), wire[i].NS/wire[0].NS,
			size(small[i]), size(large[i]))
	}
	return watch.Publish(out, "make bench-http", b.String())
}

func size(n float64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", n/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", n/(1<<10))
	default:
		return fmt.Sprintf("%.0f B", n)
	}
}
