// Outage measures what callers see under faults of Redis: through Holdfast, and
// through a plain limiter that runs one script by go-redis with default options.
// Then it measures fleets in an outage: whose traffic is skewed, that start in it, and that
// return from it. It starts its own redis-server, prints tables in Markdown, and writes them to
// files when it is given some.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/bench/internal/machine"
)

func main() {
	out := flag.String("out", "", "file to write the table of faults to; none of them is measured without a file, or only")
	fleet := flag.String("fleets", "", "file to write the tables of fleets to; none is measured without one")
	length := flag.Duration("fault", 2*time.Second, "how long each fault lasts")
	only := flag.String("only", "", "run only the faults whose name contains this")
	flag.Parse()
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler))

	watch := machine.New()
	var b strings.Builder
	fmt.Fprintf(&b, "| fault, for %v | p50 | p99 | slowest | errors | admitted ÷ limit | back after | *plain:* p50 | p99 | errors | back after |\n", *length)
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range faults {
		if *out == "" && *only == "" || !strings.Contains(f.name, *only) {
			continue
		}
		var both [2]figures
		for i, kind := range []string{"Holdfast", "plain script"} {
			fmt.Fprintf(os.Stderr, "%s, %s ...\n", f.name, kind)
			var err error
			if both[i], err = measure(f, kind, *length); err != nil {
				fmt.Fprintf(os.Stderr, "%s, %s: %v\n", f.name, kind, err)
				os.Exit(1)
			}
		}
		h, p := both[0], both[1]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %.2f | %s | %s | %s | %d of %d | %s |\n", f.name,
			short(h.p50), short(h.p99), short(h.slowest), h.errors, h.admitted, short(h.back),
			short(p.p50), short(p.p99), p.errors, p.decisions, short(p.back))
	}
	publish(watch, *out, b.String())
	if *fleet != "" {
		watch := machine.New()
		tables, err := fleets()
		if err != nil {
			fmt.Fprintf(os.Stderr, "fleets: %v\n", err)
			os.Exit(1)
		}
		publish(watch, *fleet, tables)
	}
}

// publish prints tables below the line that says when and on what they were measured, and writes them to a file
// if there is one.
func publish(watch machine.Watch, file, tables string) {
	if err := watch.Publish(file, "make outage", tables); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
