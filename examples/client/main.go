// Client: calls a local API that rejects in every style that servers use, and
// prints what was waited and why.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

// run calls every route of the API in turn, and then one from many goroutines.
func run(ctx context.Context, out io.Writer) error {
	api, err := startAPI()
	if err != nil {
		return err
	}
	defer api.close()
	c, err := newCaller(api, out)
	if err != nil {
		return err
	}
	defer c.client.CloseIdleConnections()
	fmt.Fprint(out, "Each route rejects once or more, in its own style.\n\n")
	for _, r := range api.routes {
		if err := c.call(ctx, r); err != nil {
			return err
		}
	}
	return c.crowd(ctx)
}
