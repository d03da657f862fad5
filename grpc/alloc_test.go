//go:build !race

package holdfastgrpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/limiter"
)

// TestAllocations: what the interceptors add to a call that is admitted, with a local
// limiter, in memory from the heap. The race detector allocates on its own; there is a
// run without it.
func TestAllocations(t *testing.T) {
	lim := local(t, limiter.GCRA(limiter.PerHour(1_000_000), 1_000_000))
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-user", "7", "authorization", "Bearer abc"))
	ctx = peer.NewContext(ctx, &peer.Peer{Addr: tcp("192.0.2.1:1")})
	info := &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}
	serve := func(context.Context, any) (any, error) { return nil, nil }
	for name, c := range map[string]struct {
		key  holdfastgrpc.Key
		want float64
	}{
		"method":   {holdfastgrpc.Method(), 0},
		"peer":     {holdfastgrpc.PeerIP(), 1},           // the text of the address
		"metadata": {holdfastgrpc.Metadata("x-user"), 1}, // grpc-go's copy of the values
		"api key":  {holdfastgrpc.APIKey(), 2},           // that, and the text of the hash
	} {
		s, err := holdfastgrpc.NewServer(lim, c.key)
		if err != nil {
			t.Fatal(err)
		}
		unary := s.Unary()
		n := testing.AllocsPerRun(1000, func() {
			if _, err := unary(ctx, nil, info, serve); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("server, %s: %v allocations", name, n)
		if n > c.want {
			t.Errorf("server, %s: %v allocations, want at most %v", name, n, c.want)
		}
	}

	c, err := holdfastgrpc.NewClient(holdfastgrpc.WithLimiter(lim))
	if err != nil {
		t.Fatal(err)
	}
	unary := c.Unary()
	invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	n := testing.AllocsPerRun(1000, func() {
		if err := unary(ctx, "/a.B/C", nil, nil, nil, invoke); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("client: %v allocations", n)
	if n > 4 {
		t.Errorf("client: %v allocations, want at most 4", n)
	}
}
