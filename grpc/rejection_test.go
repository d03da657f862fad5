package holdfastgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/fallback"
	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/limiter"
)

// denied makes a call of each kind that is refused, and returns error and trailer.
func denied(t *testing.T, c testgrpc.TestServiceClient) map[string]func() (header, trailer metadata.MD, err error) {
	return map[string]func() (metadata.MD, metadata.MD, error){
		"unary": func() (header, trailer metadata.MD, err error) {
			_, err = c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
			return header, trailer, err
		},
		"server stream": func() (metadata.MD, metadata.MD, error) {
			s, err := c.StreamingOutputCall(t.Context(), &testgrpc.StreamingOutputCallRequest{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Recv()
			header, _ := s.Header()
			return header, s.Trailer(), err
		},
		"client stream": func() (metadata.MD, metadata.MD, error) {
			s, err := c.StreamingInputCall(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.CloseAndRecv()
			header, _ := s.Header()
			return header, s.Trailer(), err
		},
		"both": func() (metadata.MD, metadata.MD, error) {
			s, err := c.FullDuplexCall(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Recv()
			header, _ := s.Header()
			return header, s.Trailer(), err
		},
	}
}

// TestRejection: what a refused call of each kind is told, and that it is told in trailers
// alone, without which grpc-go does not retry.
func TestRejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := local(t, limiter.GCRA(limiter.Per(1, 90*time.Second), 1))
		b := &backend{}
		c := inMemory(t, b, nil, limited(t, lim, holdfastgrpc.Everyone(), holdfastgrpc.WithPolicy("free plan"))...)
		if err := call(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second + 1234500*time.Microsecond)
		left := 90*time.Second - 2234500*time.Microsecond
		for kind, refuse := range denied(t, c) {
			header, trailer, err := refuse()
			info, _ := detail[*errdetails.RetryInfo](err)
			if status.Code(err) != busy || info.GetRetryDelay().AsDuration() != left || subject(err) != "free plan" || !strings.HasSuffix(err.Error(), "; retry in 1m27.766s") {
				t.Errorf("%s: %v, %v", kind, err, status.Convert(err).Details())
			}
			if d, ok := holdfastgrpc.Wait(fmt.Errorf("wrapped: %w", err)); d != left || !ok {
				t.Errorf("%s: Wait says %v, %v", kind, d, ok)
			}
			if v := trailer.Get(pushbackKey); len(v) != 1 || v[0] != "87766" { // 87765.5 ms
				t.Errorf("%s: pushback %q", kind, v)
			}
			if len(header) > 0 {
				t.Errorf("%s: a header, %v, came before the trailer", kind, header)
			}
		}
		b.wantCalls(t, 1)
	})
}

// TestPushback: whole milliseconds, rounded up, never 0, and not to be retried where
// they do not fit.
func TestPushback(t *testing.T) {
	for _, c := range []struct {
		wait, info time.Duration
		pushback   string
	}{
		{0, time.Millisecond, "1"},
		{time.Microsecond, time.Microsecond, "1"},
		{time.Millisecond, time.Millisecond, "1"},
		{time.Millisecond + 1, time.Millisecond + 1, "2"},
		{math.MaxInt32 * time.Millisecond, math.MaxInt32 * time.Millisecond, "2147483647"},
		{math.MaxInt32*time.Millisecond + 1, math.MaxInt32*time.Millisecond + 1, "-1"},
		{math.MaxInt64, math.MaxInt64, "-1"},
	} {
		lim := allower(func(string, int) (limiter.Result, error) { return limiter.Result{RetryAfter: c.wait}, nil })
		conn := dial(t, serve(t, &backend{}, limited(t, lim, holdfastgrpc.Everyone())...))
		_, trailer, err := denied(t, conn)["unary"]()
		if d, _ := holdfastgrpc.Wait(err); d != c.info || strings.Join(trailer[pushbackKey], ",") != c.pushback {
			t.Errorf("%v: RetryInfo %v, pushback %q, want %v and %s", c.wait, d, trailer[pushbackKey], c.info, c.pushback)
		}
	}
}

// TestPolicyNameThatIsNotUTF8: a policy whose name is no UTF-8, as a part of a Multi may have,
// costs the rejection nothing but that name.
func TestPolicyNameThatIsNotUTF8(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	lim, err := limiter.New(rdb, one, limiter.WithShare(1), limiter.WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	multi, err := limiter.NewMulti(limiter.Part{Name: "free\xff", Limiter: lim})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, serve(t, &backend{}, limited(t, multi, holdfastgrpc.Everyone())...))
	wantCodes(t, "the first", c, nil, okay)
	_, trailer, err := denied(t, c)["unary"]()
	if d, ok := holdfastgrpc.Wait(err); !ok || d <= 0 || subject(err) != "free\uFFFD" || len(trailer[pushbackKey]) != 1 {
		t.Errorf("%v, %v, subject %q", err, trailer, subject(err))
	}
}

// TestErrors: each has its code, and neither causes nor keys are the caller's to see.
func TestErrors(t *testing.T) {
	secret := errors.New("password of the database")
	for _, c := range []struct {
		err  error
		want codes.Code
	}{
		{secret, codes.Internal},
		{fmt.Errorf("%w of key %q: %w", limiter.ErrState, "the raw key", secret), codes.Internal},
		{fmt.Errorf("%w: the raw key", limiter.ErrInvalidConfig), codes.Internal},
		{fmt.Errorf("%w: %w", limiter.ErrUnavailable, secret), codes.Unavailable},
		{fmt.Errorf("%w: %w", limiter.ErrUnavailable, context.DeadlineExceeded), codes.Unavailable},
		{limiter.ErrClosed, codes.Unavailable},
		{limiter.ErrCostExceedsLimit, codes.InvalidArgument},
		{limiter.ErrInvalidCost, codes.InvalidArgument},
		{fmt.Errorf("%w: the raw key", limiter.ErrInvalidKey), codes.InvalidArgument},
		{context.Canceled, codes.Canceled},
		{fmt.Errorf("the raw key: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		{status.Error(codes.NotFound, "the raw key"), codes.Internal},
	} {
		failing := allower(func(string, int) (limiter.Result, error) { return limiter.Result{}, c.err })
		conn := dial(t, serve(t, &backend{}, limited(t, failing, holdfastgrpc.Metadata("x-user"))...))
		for _, err := range []error{call(t.Context(), conn, "x-user", "the raw key"), drain(t.Context(), conn, "x-user", "the raw key")} {
			if text := fmt.Sprint(err, status.Convert(err).Details()); status.Code(err) != c.want || strings.Contains(text, "raw") || strings.Contains(text, "password") {
				t.Errorf("%v: %s, want %v", c.err, text, c.want)
			}
		}
	}
	for _, c := range []struct {
		err  error
		want codes.Code
		text string
	}{
		{secret, codes.Internal, "the rate limiter failed"},
		{fmt.Errorf("no: %w", status.Error(codes.PermissionDenied, "token expired")), codes.PermissionDenied, "no: rpc error: code = PermissionDenied desc = token expired"},
		{holdfastgrpc.ErrNoKey, codes.InvalidArgument, "the call has no rate-limit key"},
		{okStatus{}, codes.Internal, "the rate limiter failed"},
	} {
		key := holdfastgrpc.KeyFunc(func(context.Context, holdfastgrpc.RPC) (string, error) { return "", c.err })
		err := call(t.Context(), dial(t, serve(t, &backend{}, limited(t, local(t, one), key)...)))
		if st := status.Convert(err); st.Code() != c.want || st.Message() != c.text {
			t.Errorf("a key that fails: %v, want %v: %s", err, c.want, c.text)
		}
	}
}

// okStatus is an error whose status says that there is none.
type okStatus struct{}

func (okStatus) Error() string              { return "broken" }
func (okStatus) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// TestFailsClosed: without Redis, under the policy Closed, calls are told when to try
// again.
func TestFailsClosed(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	lim, err := limiter.New(rdb, one, limiter.WithFallback(fallback.Closed), limiter.WithLogger(discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	c := dial(t, serve(t, &backend{}, limited(t, lim, holdfastgrpc.Everyone())...))
	for kind, refuse := range denied(t, c) {
		_, trailer, err := refuse()
		d, ok := holdfastgrpc.Wait(err)
		if status.Code(err) != codes.Unavailable || !ok || d <= 0 || len(trailer[pushbackKey]) != 1 || subject(err) != "" {
			t.Errorf("%s: %v, %v, %v", kind, err, d, trailer)
		}
	}
}

// attempts counts what grpc-go sends, retries included.
type attempts struct {
	stats.Handler
	begun chan time.Time
}

func (attempts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (attempts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (attempts) HandleConn(context.Context, stats.ConnStats)                       {}
func (a attempts) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutHeader); ok {
		a.begun <- time.Now()
	}
}

// TestRetryPolicyOfGRPC: grpc-go's own retries, by a service config, wait for as long as
// our trailer says, rather than for their backoff of a minute.
func TestRetryPolicyOfGRPC(t *testing.T) {
	const config = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "60s",
		"maxBackoff": "60s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`
	synctest.Test(t, func(t *testing.T) {
		lim := local(t, limiter.GCRA(limiter.Per(1, 7*time.Second), 1))
		a := attempts{begun: make(chan time.Time, 10)}
		c := inMemory(t, &backend{}, []grpc.DialOption{grpc.WithDefaultServiceConfig(config), grpc.WithStatsHandler(a)},
			limited(t, lim, holdfastgrpc.Everyone())...)
		for i := range 2 {
			if err := call(t.Context(), c); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
		}
		<-a.begun
		first, second := <-a.begun, <-a.begun
		if d := second.Sub(first); d != 7*time.Second {
			t.Errorf("it came again after %v, want 7s", d)
		}
	})
}
