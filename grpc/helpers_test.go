package holdfastgrpc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/limiter"
)

const pushbackKey = "grpc-retry-pushback-ms"

var discard = slog.New(slog.DiscardHandler)

// backend serves what a test wants, and remembers when unary calls reached it.
type backend struct {
	testgrpc.UnimplementedTestServiceServer
	unary  func(ctx context.Context, n int) error // n counts from 1
	duplex func(grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error

	mu sync.Mutex
	at []time.Time
}

func (b *backend) came() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = append(b.at, time.Now())
	return len(b.at)
}

// times are when calls came.
func (b *backend) times() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]time.Time(nil), b.at...)
}

// gap is the time between calls i and i+1, from 1.
func (b *backend) gap(i int) time.Duration {
	at := b.times()
	return at[i].Sub(at[i-1])
}

func (b *backend) wantCalls(t *testing.T, n int) {
	t.Helper()
	if got := len(b.times()); got != n {
		t.Fatalf("%d calls reached the server, want %d", got, n)
	}
}

func (b *backend) UnaryCall(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	n := b.came()
	if b.unary != nil {
		if err := b.unary(ctx, n); err != nil {
			return nil, err
		}
	}
	return &testgrpc.SimpleResponse{}, nil
}

func (b *backend) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	return &testgrpc.Empty{}, nil
}

func (b *backend) StreamingOutputCall(req *testgrpc.StreamingOutputCallRequest, ss grpc.ServerStreamingServer[testgrpc.StreamingOutputCallResponse]) error {
	n := b.came()
	if b.unary != nil {
		if err := b.unary(ss.Context(), n); err != nil {
			return err
		}
	}
	for range req.ResponseParameters {
		if err := ss.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
	return nil
}

func (b *backend) StreamingInputCall(ss grpc.ClientStreamingServer[testgrpc.StreamingInputCallRequest, testgrpc.StreamingInputCallResponse]) error {
	n := b.came()
	for {
		if _, err := ss.Recv(); err != nil {
			break
		}
	}
	if b.unary != nil {
		if err := b.unary(ss.Context(), n); err != nil {
			return err
		}
	}
	return ss.SendAndClose(&testgrpc.StreamingInputCallResponse{})
}

func (b *backend) FullDuplexCall(ss grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
	if b.duplex != nil {
		return b.duplex(ss)
	}
	for {
		if _, err := ss.Recv(); err != nil {
			return nil
		}
		if err := ss.Send(&testgrpc.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// serve starts a server on the loopback and returns its address.
func serve(t testing.TB, b *backend, opts ...grpc.ServerOption) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	start(t, lis, b, opts...)
	return lis.Addr().String()
}

func start(t testing.TB, lis net.Listener, b *backend, opts ...grpc.ServerOption) {
	srv := grpc.NewServer(opts...)
	testgrpc.RegisterTestServiceServer(srv, b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(lis)
	}()
	t.Cleanup(func() {
		srv.Stop()
		<-done
	})
}

// dial connects to an address of serve.
func dial(t testing.TB, addr string, opts ...grpc.DialOption) testgrpc.TestServiceClient {
	t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	cc, err := grpc.NewClient(addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return testgrpc.NewTestServiceClient(cc)
}

// inMemory is serve and dial without sockets, as a synctest bubble needs it.
func inMemory(t testing.TB, b *backend, dialOpts []grpc.DialOption, opts ...grpc.ServerOption) testgrpc.TestServiceClient {
	t.Helper()
	return dial(t, memory, append(dialOpts, serveInMemory(t, b, opts...))...)
}

// memory is the address of every server in memory.
const memory = "passthrough:///memory"

// serveInMemory is serve without sockets: its clients dial with the option.
func serveInMemory(t testing.TB, b *backend, opts ...grpc.ServerOption) grpc.DialOption {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	start(t, lis, b, opts...)
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })
}

func local(t testing.TB, limit limiter.Limit, opts ...limiter.LocalOption) *limiter.Limiter {
	t.Helper()
	lim, err := limiter.NewLocal(limit, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

// allower is one of the user's.
type allower func(key string, n int) (limiter.Result, error)

func (f allower) AllowN(_ context.Context, key string, n int) (limiter.Result, error) {
	return f(key, n)
}

// limited are the options of a server that asks allower.
func limited(t testing.TB, allower limiter.Allower, key holdfastgrpc.Key, opts ...holdfastgrpc.ServerOption) []grpc.ServerOption {
	t.Helper()
	s, err := holdfastgrpc.NewServer(allower, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.Unary()), grpc.ChainStreamInterceptor(s.Stream())}
}

// paced are the options of a connection through a new Client.
func paced(t testing.TB, opts ...holdfastgrpc.ClientOption) []grpc.DialOption {
	t.Helper()
	c, err := holdfastgrpc.NewClient(append([]holdfastgrpc.ClientOption{holdfastgrpc.WithLogger(discard)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return []grpc.DialOption{grpc.WithUnaryInterceptor(c.Unary()), grpc.WithStreamInterceptor(c.Stream())}
}

// call makes a unary call with metadata in pairs.
func call(ctx context.Context, c testgrpc.TestServiceClient, md ...string) error {
	_, err := c.UnaryCall(metadata.AppendToOutgoingContext(ctx, md...), &testgrpc.SimpleRequest{})
	return err
}

// drain makes a call with a stream of answers and reads it to its end.
func drain(ctx context.Context, c testgrpc.TestServiceClient, md ...string) error {
	s, err := c.StreamingOutputCall(metadata.AppendToOutgoingContext(ctx, md...), &testgrpc.StreamingOutputCallRequest{
		ResponseParameters: make([]*testgrpc.ResponseParameters, 2),
	})
	for err == nil {
		_, err = s.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// wantCodes makes calls and compares their codes.
func wantCodes(t *testing.T, what string, c testgrpc.TestServiceClient, md []string, want ...codes.Code) {
	t.Helper()
	for i, code := range want {
		if err := call(t.Context(), c, md...); status.Code(err) != code {
			t.Errorf("%s: call %d: %v, want %v", what, i, err, code)
		}
	}
}

// detail finds a detail of a status.
func detail[T any](err error) (found T, ok bool) {
	for _, d := range status.Convert(err).Details() {
		if found, ok = d.(T); ok {
			return found, true
		}
	}
	return found, false
}

// subject is the policy that a rejection names.
func subject(err error) string {
	q, ok := detail[*errdetails.QuotaFailure](err)
	if !ok || len(q.Violations) != 1 {
		return ""
	}
	return q.Violations[0].Subject
}

func between(t testing.TB, what string, d, least, most time.Duration) {
	t.Helper()
	if d < least || d > most {
		t.Errorf("%s %v, want %v to %v", what, d, least, most)
	}
}
