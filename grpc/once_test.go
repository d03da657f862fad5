package holdfastgrpc_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/retry"
)

// fragile is a listener whose connections a test can cut.
type fragile struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *fragile) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, c)
		l.mu.Unlock()
	}
	return c, err
}

func (l *fragile) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// cutting serves calls that do their work and then lose the connection.
func cutting(t *testing.T, opts ...grpc.ServerOption) (b *backend, addr string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &fragile{Listener: lis}
	b = &backend{unary: func(context.Context, int) error { l.cut(); return nil }}
	b.duplex = func(ss grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
		_, _ = ss.Recv()
		b.came()
		l.cut()
		return nil
	}
	start(t, l, b, opts...)
	return b, lis.Addr().String()
}

// soon retries without making a test wait.
var soon = holdfastgrpc.WithBackoff(retry.Backoff{Initial: time.Millisecond, Max: time.Millisecond})

const unaryCall = "/grpc.testing.TestService/UnaryCall"

// TestDoneOnce: a server that does the work and then loses the connection is not asked to
// do it again, unless the method is known to be idempotent, and then it is.
func TestDoneOnce(t *testing.T) {
	for kind, send := range kinds {
		for name, c := range map[string]struct {
			opts  []holdfastgrpc.ClientOption
			calls map[string]int
		}{
			"default":        {nil, nil},
			"another method": {[]holdfastgrpc.ClientOption{holdfastgrpc.WithIdempotent("/grpc.testing.TestService/EmptyCall")}, nil},
			// A stream is not opened again once it was opened.
			"idempotent": {[]holdfastgrpc.ClientOption{
				holdfastgrpc.WithIdempotent(unaryCall, "/grpc.testing.TestService/FullDuplexCall"),
				holdfastgrpc.WithIdempotent("/grpc.testing.TestService/StreamingOutputCall", "/grpc.testing.TestService/StreamingInputCall"),
			}, map[string]int{"unary": 3}},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				b, addr := cutting(t)
				if err := send(t.Context(), dial(t, addr, paced(t, append(c.opts, soon)...)...)); status.Code(err) != codes.Unavailable {
					t.Errorf("%v, want Unavailable", err)
				}
				b.wantCalls(t, max(1, c.calls[kind]))
			})
		}
	}
}

// atEnd is a stats handler that calls a function when an attempt of grpc-go is over.
type atEnd func()

func (atEnd) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (atEnd) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (atEnd) HandleConn(context.Context, stats.ConnStats)                       {}

func (f atEnd) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, over := s.(*stats.End); over {
		f()
	}
}

// TestDoneOnceByARetryPolicy: what grpc-go has sent counts, although its own retry, and so
// the error, is of a connection that could not be made.
func TestDoneOnceByARetryPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := scripted(answer{code: codes.Unavailable})
		lis := bufconn.Listen(1 << 16)
		start(t, lis, b)
		var conn net.Conn
		var waits int
		var why []*holdfastgrpc.Error
		hooks := holdfastgrpc.WithHooks(holdfastgrpc.Hooks{
			Wait:   func(context.Context, holdfastgrpc.WaitInfo) { waits++ },
			GiveUp: func(_ context.Context, e *holdfastgrpc.Error) { why = append(why, e) },
		})
		c := dial(t, "passthrough:///memory", append(paced(t, hooks),
			grpc.WithStatsHandler(atEnd(func() { _ = conn.Close() })),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (_ net.Conn, err error) {
				if conn != nil {
					return nil, errors.New("refused")
				}
				conn, err = lis.DialContext(ctx)
				return conn, err
			}),
			grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2,
				"initialBackoff": "1s", "maxBackoff": "1s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`))...)
		if err := call(t.Context(), c); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "refused") {
			t.Error(err)
		}
		b.wantCalls(t, 1)
		if waits != 0 || len(why) != 1 || why[0].Reason != retry.NotIdempotent {
			t.Errorf("%d waits, gave up because of %v", waits, why)
		}
	})
}

// TestUnknownAttemptCountsAsSent: where an interceptor inside of ours does not pass on what grpc-go is
// to tell us, the call may have been sent.
func TestUnknownAttemptCountsAsSent(t *testing.T) {
	c, err := holdfastgrpc.NewClient(soon)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	down := status.Error(codes.Unavailable, "")
	_ = c.Unary()(t.Context(), unaryCall, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		calls++
		return down
	})
	_, _ = c.Stream()(t.Context(), &grpc.StreamDesc{}, nil, unaryCall, func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
		calls++
		return nil, down
	})
	if calls != 2 {
		t.Errorf("%d calls, want one of each kind", calls)
	}
}
