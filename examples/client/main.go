// Client: calls a local API that rejects in every style that servers use, and
// prints what was waited and why.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = run(ctx, http.DefaultTransport, l, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

// run serves the API on a listener and calls it through a transport: every route in turn,
// and then one from many goroutines.
func run(ctx context.Context, base http.RoundTripper, l net.Listener, out io.Writer) error {
	api := startAPI(l)
	defer api.close()
	c, err := newCaller(api, base, out)
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
