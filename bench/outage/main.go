// Outage measures what callers see under faults of Redis: through Holdfast, and
// through a plain limiter that runs one script by go-redis with default options.
// It starts its own redis-server, prints a table in Markdown, and writes it to a
// file when it is given one.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	out := flag.String("out", "", "file to write the table to")
	length := flag.Duration("fault", 2*time.Second, "how long each fault lasts")
	only := flag.String("only", "", "run only the faults whose name contains this")
	flag.Parse()
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler))

	var b strings.Builder
	fmt.Fprintf(&b, "| fault, for %v | limiter | p50 | p99 | slowest | errors | admitted ÷ limit | back on Redis after |\n", *length)
	b.WriteString("|---|---|---|---|---|---|---|---|\n")
	for _, f := range faults {
		if !strings.Contains(f.name, *only) {
			continue
		}
		for _, kind := range []string{"Holdfast", "plain script"} {
			fmt.Fprintf(os.Stderr, "%s, %s ...\n", f.name, kind)
			row, err := measure(f, kind, *length)
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s, %s: %v\n", f.name, kind, err)
				os.Exit(1)
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", f.name, kind, row)
		}
	}
	fmt.Print(b.String())
	if *out != "" {
		if err := os.WriteFile(*out, []byte(b.String()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
