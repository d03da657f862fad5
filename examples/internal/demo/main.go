package demo

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

// Main is the main of an example: it reads the flags into cfg, runs the program until it
// is done or interrupted, and exits with 1 after an error.
func Main[C any](name string, cfg *C, run func(context.Context, C, io.Writer) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}
