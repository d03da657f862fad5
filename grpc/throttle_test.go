package holdfastgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// strict rejects whatever it may reject after n failures.
func strict(n int) holdfastgrpc.ClientOption {
	return holdfastgrpc.WithThrottle(retry.ThrottleSettings{MinRequests: n, Rand: func() float64 { return 0 }})
}

// TestThrottle: a target that fails is sent no more, by unary calls and streams, until it
// answers again.
func TestThrottle(t *testing.T) {
	for name, send := range map[string]func(context.Context, testgrpc.TestServiceClient) error{
		"unary":  func(ctx context.Context, c testgrpc.TestServiceClient) error { return call(ctx, c) },
		"stream": func(ctx context.Context, c testgrpc.TestServiceClient) error { return drain(ctx, c) },
	} {
		for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.DataLoss} {
			t.Run(fmt.Sprint(name, " ", code), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					answers := make([]answer, 6)
					for i := range 5 {
						answers[i].code = code
					}
					b := scripted(answers...)
					var changes []bool
					c := inMemory(t, b, paced(t, strict(5), holdfastgrpc.WithHooks(holdfastgrpc.Hooks{
						ThrottleChange: func(_ context.Context, c retry.ThrottleChange) { changes = append(changes, c.Throttling) },
					})))
					for range 5 {
						if err := send(t.Context(), c); status.Code(err) != code {
							t.Fatal(err)
						}
					}
					err := send(t.Context(), c)
					e, ok := errors.AsType[*holdfastgrpc.Error](err)
					if !ok || e.Reason != retry.HostFailing || e.Wait <= 0 || status.Code(err) != codes.Unavailable {
						t.Fatalf("%v", err)
					}
					b.wantCalls(t, 5)
					time.Sleep(3 * time.Minute)
					for range 6 {
						if err := send(t.Context(), c); err != nil {
							t.Fatal(err)
						}
					}
					if fmt.Sprint(changes) != "[true false]" {
						t.Errorf("the hook was told %v", changes)
					}
				})
			})
		}
	}
}

// encodesNothing is a codec.
type encodesNothing struct{}

func (encodesNothing) Marshal(any) ([]byte, error) { return nil, errors.New("a field has no value") }
func (encodesNothing) Unmarshal([]byte, any) error { return nil }
func (encodesNothing) Name() string                { return "nothing" }

// compressesNothing is a compressor.
type compressesNothing struct{}

func init() { encoding.RegisterCompressor(compressesNothing{}) }

func (compressesNothing) Compress(io.Writer) (io.WriteCloser, error) {
	return nil, errors.New("no memory")
}
func (compressesNothing) Decompress(io.Reader) (io.Reader, error) {
	return nil, errors.New("no memory")
}
func (compressesNothing) Name() string { return "nothing" }

// TestThrottleIgnores: what says nothing about the target, or that it works, rejects nothing.
func TestThrottleIgnores(t *testing.T) {
	for _, code := range []codes.Code{codes.ResourceExhausted, codes.Canceled, codes.Unknown, codes.NotFound, codes.InvalidArgument, codes.Unimplemented, codes.Aborted, codes.DeadlineExceeded} {
		t.Run(code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := scripted(answer{code: code})
				c := inMemory(t, b, paced(t, strict(1)))
				for range 20 {
					if err := call(t.Context(), c); status.Code(err) != code {
						t.Fatal(err)
					}
					if err := drain(t.Context(), c); status.Code(err) != code {
						t.Fatal(err)
					}
				}
				b.wantCalls(t, 40)
			})
		})
	}
	t.Run("not encoded", func(t *testing.T) {
		for kind, o := range map[string]grpc.CallOption{
			"codec": grpc.ForceCodec(encodesNothing{}), "compressor": grpc.UseCompressor(compressesNothing{}.Name()),
		} {
			synctest.Test(t, func(t *testing.T) {
				c := inMemory(t, scripted(answer{}), paced(t, strict(1)))
				for range 20 {
					if _, err := c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{ResponseSize: 1}, o); status.Code(err) != codes.Internal {
						t.Fatalf("%s: %v", kind, err)
					}
					s, err := c.FullDuplexCall(t.Context(), o)
					if err != nil {
						t.Fatalf("%s: %v", kind, err)
					}
					if err = s.Send(&testgrpc.StreamingOutputCallRequest{Payload: new(testgrpc.Payload)}); status.Code(err) != codes.Internal {
						t.Fatalf("%s: %v", kind, err)
					}
					if _, err = s.Recv(); status.Code(err) != codes.Internal {
						t.Fatalf("%s: %v", kind, err)
					}
				}
			})
		}
	})
	t.Run("never sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := scripted(answer{})
			broken := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, _ grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				for _, o := range opts {
					if o, ok := o.(grpc.OnFinishCallOption); ok {
						o.OnFinish(nil)
					}
				}
				return errors.New("no token")
			}
			c := inMemory(t, b, append(paced(t, strict(1)), grpc.WithChainUnaryInterceptor(broken)))
			for range 20 {
				if err := call(t.Context(), c); err == nil || err.Error() != "no token" {
					t.Fatal(err)
				}
			}
		})
	})
}

// TestDeadlinesAndTheThrottle: a deadline counts against the target when the attempt had a
// fair time, and not when its caller is impatient.
func TestDeadlinesAndTheThrottle(t *testing.T) {
	for deadline, want := range map[time.Duration]bool{5 * time.Millisecond: false, 2 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			b := &backend{unary: func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }}
			c := inMemory(t, b, paced(t, strict(5)))
			for range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				err := call(ctx, c)
				cancel()
				if e, ok := errors.AsType[*holdfastgrpc.Error](err); ok && e.Reason == retry.HostFailing {
					if !want {
						t.Errorf("deadlines of %v throttle the target", deadline)
					}
					return
				}
			}
			if want {
				t.Errorf("deadlines of %v do not throttle the target", deadline)
			}
		})
	}
}

// TestThrottleOptions: it can be turned off, critical calls are rejected last, and settings
// are checked.
func TestThrottleOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := scripted(answer{code: codes.Internal})
		c := inMemory(t, b, paced(t, holdfastgrpc.WithoutThrottle()))
		for range 50 {
			_ = call(t.Context(), c)
		}
		b.wantCalls(t, 50)

		n := 0
		b = &backend{unary: func(context.Context, int) error {
			if n++; n%5 == 0 {
				return nil
			}
			return status.Error(codes.Internal, "")
		}}
		c = inMemory(t, b, paced(t, strict(10)))
		for range 10 {
			_ = call(t.Context(), c)
		}
		if err := call(limiter.Critical(t.Context()), c); status.Code(err) != codes.Internal {
			t.Errorf("a critical call: %v", err)
		}
		if err := call(t.Context(), c); status.Code(err) != codes.Unavailable {
			t.Errorf("another one: %v", err)
		}
	})
	_, err := holdfastgrpc.NewClient(holdfastgrpc.WithThrottle(retry.ThrottleSettings{Multiplier: 0.5}))
	if !errors.Is(err, limiter.ErrInvalidConfig) || !strings.HasPrefix(err.Error(), "holdfastgrpc: ThrottleSettings.Multiplier") {
		t.Errorf("%v", err)
	}
}

// TestHeadersOfProxies: waits in the headers of HTTP are understood as httpclient does.
func TestHeadersOfProxies(t *testing.T) {
	for name, c := range map[string]struct {
		code    codes.Code
		trailer metadata.MD
		again   bool
		least   time.Duration
	}{
		"Retry-After":               {codes.ResourceExhausted, metadata.Pairs("retry-after", "7"), true, 7 * time.Second},
		"Retry-After-Ms":            {codes.Unavailable, metadata.Pairs("retry-after-ms", "2500"), true, 2500 * time.Millisecond},
		"x-ratelimit of Envoy":      {codes.ResourceExhausted, metadata.Pairs("x-ratelimit-remaining", "0", "x-ratelimit-reset", "9"), true, 9 * time.Second},
		"the draft":                 {codes.ResourceExhausted, metadata.Pairs("ratelimit", `"default";r=0;t=5`), true, 5 * time.Second},
		"a quota with some left":    {codes.Unavailable, metadata.Pairs("x-ratelimit-remaining", "3", "x-ratelimit-reset", "9"), false, 0},
		"the end of a quota":        {codes.Unavailable, metadata.Pairs("x-ratelimit-remaining", "0", "x-ratelimit-reset", "9"), false, 0}, // the work may be done
		"the longer of two":         {codes.ResourceExhausted, metadata.Pairs("retry-after", "7", pushbackKey, "9000"), true, 9 * time.Second},
		"forbidden by the pushback": {codes.ResourceExhausted, metadata.Pairs("retry-after", "7", pushbackKey, "-1"), false, 0},
		"garbage":                   {codes.ResourceExhausted, metadata.Pairs("retry-after", "soon"), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &backend{unary: func(ctx context.Context, n int) error {
					if n > 1 {
						return nil
					}
					if err := grpc.SetTrailer(ctx, c.trailer); err != nil {
						return err
					}
					return status.Error(c.code, "")
				}}
				err := call(t.Context(), inMemory(t, b, paced(t)))
				if (err == nil) != c.again {
					t.Fatal(err)
				}
				if c.again {
					between(t, "waited", b.gap(1), c.least, c.least*3/2)
				}
			})
		})
	}
}
