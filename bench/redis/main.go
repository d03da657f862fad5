// Redis measures decisions per second through Redis: Holdfast next to others, in
// one run, on a redis-server that it starts. All take turns in every round; the
// tables have medians. Denials are decisions too; errors are counted, and so is
// what was admitted beyond the limit.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/internal/redisproc"
)

func main() {
	out := flag.String("out", "", "file to write the tables to")
	rounds := flag.Int("rounds", 5, "rounds, in each of which all take a turn")
	length := flag.Duration("turn", time.Second, "length of a turn")
	only := flag.String("only", "", "only the contenders whose name contains this, and the plain one")
	flag.Parse()
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if err := run(*out, *only, *rounds, *length); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
}

func run(out, only string, rounds int, length time.Duration) error {
	srv, err := redisproc.Start(redisproc.Options{})
	if err != nil {
		return err
	}
	defer srv.Close()
	var list []contender
	for i, c := range contenders {
		if i == 0 || strings.Contains(c.name, only) {
			list = append(list, c)
		}
	}
	var b strings.Builder
	for _, load := range loads {
		fmt.Fprintf(os.Stderr, "%s ...\n", load)
		results, err := measure(srv, list, load, rounds, length)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "**%s**\n\n", load)
		b.WriteString("| | decisions/s | × plain | p50 | p99 | p99.9 | allocations | errors |\n|---|---|---|---|---|---|---|---|\n")
		for i, r := range results {
			fmt.Fprintf(&b, "| %s | %.0f | %.2f | %v | %v | %v | %.1f | %d |\n", list[i].name, r.rate, r.rate/results[0].rate,
				short(r.p50), short(r.p99), short(r.p999), r.allocs, r.errors)
		}
		b.WriteString("\n")
	}
	fmt.Print(b.String())
	if out != "" {
		return os.WriteFile(out, []byte(b.String()), 0o644)
	}
	return nil
}

func short(d time.Duration) time.Duration {
	switch {
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	default:
		return d.Round(time.Microsecond)
	}
}
