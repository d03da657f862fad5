package holdfastgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/limiter"
)

// dialExample starts a server with the options, and connects to it.
func dialExample(serverOpts []grpc.ServerOption, opts ...grpc.DialOption) (client healthgrpc.HealthClient, stop func()) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	srv := grpc.NewServer(serverOpts...)
	healthgrpc.RegisterHealthServer(srv, health.NewServer())
	go func() { _ = srv.Serve(lis) }()
	cc, err := grpc.NewClient(lis.Addr().String(), append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		panic(err)
	}
	return healthgrpc.NewHealthClient(cc), func() {
		_ = cc.Close()
		srv.Stop()
	}
}

// exampleLimit is a limit of n calls, for ever as far as examples go.
func exampleLimit(n int) *limiter.Limiter {
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(n, 300*time.Hour)))
	if err != nil {
		panic(err)
	}
	return lim
}

func try(client healthgrpc.HealthClient, md ...string) codes.Code {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := client.Check(metadata.AppendToOutgoingContext(ctx, md...), &healthgrpc.HealthCheckRequest{})
	return status.Code(err)
}

func ExampleNewServer() {
	lim := exampleLimit(1)
	defer lim.Close()
	limit, err := holdfastgrpc.NewServer(lim, holdfastgrpc.APIKey(), holdfastgrpc.WithPolicy("free"))
	if err != nil {
		panic(err)
	}
	client, stop := dialExample([]grpc.ServerOption{
		grpc.UnaryInterceptor(limit.Unary()),
		grpc.StreamInterceptor(limit.Stream()),
	})
	defer stop()
	fmt.Println(try(client, "x-api-key", "secret"))
	fmt.Println(try(client, "x-api-key", "secret"))
	fmt.Println(try(client, "x-api-key", "another"))
	fmt.Println(try(client))
	// Output:
	// OK
	// ResourceExhausted
	// OK
	// InvalidArgument
}

// A client that keeps to 10 calls per minute, and tells how long to wait when a call
// cannot be sent in time.
func ExampleNewClient() {
	lim, err := limiter.NewLocal(limiter.TokenBucket(limiter.PerMinute(10), 10))
	if err != nil {
		panic(err)
	}
	defer lim.Close()
	pace, err := holdfastgrpc.NewClient(holdfastgrpc.WithLimiter(lim))
	if err != nil {
		panic(err)
	}
	client, stop := dialExample(nil,
		grpc.WithUnaryInterceptor(pace.Unary()),
		grpc.WithStreamInterceptor(pace.Stream()),
	)
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for sent := 0; ; sent++ {
		_, err := client.Check(ctx, &healthgrpc.HealthCheckRequest{})
		if e, ok := errors.AsType[*holdfastgrpc.Error](err); ok {
			fmt.Printf("sent %d, then %v, retry in %v\n", sent, e.Reason, e.Wait.Round(time.Second))
			return
		}
		if err != nil {
			panic(err)
		}
	}
	// Output: sent 10, then throttled, retry in 6s
}

// What a rejection says to clients of every kind.
func ExampleWait() {
	lim, err := limiter.NewLocal(limiter.GCRA(limiter.PerHour(2), 1))
	if err != nil {
		panic(err)
	}
	defer lim.Close()
	limit, err := holdfastgrpc.NewServer(lim, holdfastgrpc.Everyone())
	if err != nil {
		panic(err)
	}
	client, stop := dialExample([]grpc.ServerOption{grpc.UnaryInterceptor(limit.Unary())})
	defer stop()
	try(client)
	_, err = client.Check(context.Background(), &healthgrpc.HealthCheckRequest{})
	wait, ok := holdfastgrpc.Wait(err)
	fmt.Println(status.Code(err), wait.Round(time.Minute), ok)
	// Output: ResourceExhausted 30m0s true
}

// Each caller has a limit for each method.
func ExampleJoin() {
	lim := exampleLimit(1)
	defer lim.Close()
	limit, err := holdfastgrpc.NewServer(lim, holdfastgrpc.Join(holdfastgrpc.Metadata("x-customer"), holdfastgrpc.Method()))
	if err != nil {
		panic(err)
	}
	client, stop := dialExample([]grpc.ServerOption{grpc.UnaryInterceptor(limit.Unary())})
	defer stop()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-customer", "42")
	fmt.Println(try(client, "x-customer", "42"), try(client, "x-customer", "42"))
	_, err = client.List(ctx, &healthgrpc.HealthListRequest{})
	fmt.Println(status.Code(err))
	// Output:
	// OK ResourceExhausted
	// OK
}

// Callers are told apart by what an earlier interceptor has verified.
func ExampleKeyFunc() {
	type user struct{}
	authenticate := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return next(context.WithValue(ctx, user{}, "alice"), req)
	}
	lim := exampleLimit(1)
	defer lim.Close()
	limit, err := holdfastgrpc.NewServer(lim, holdfastgrpc.KeyFunc(func(ctx context.Context, _ holdfastgrpc.RPC) (string, error) {
		name, ok := ctx.Value(user{}).(string)
		if !ok {
			return "", holdfastgrpc.ErrNoKey
		}
		return name, nil
	}))
	if err != nil {
		panic(err)
	}
	client, stop := dialExample([]grpc.ServerOption{grpc.ChainUnaryInterceptor(authenticate, limit.Unary())})
	defer stop()
	fmt.Println(try(client), try(client))
	// Output: OK ResourceExhausted
}

func ExamplePeerIP() {
	lim := exampleLimit(2)
	defer lim.Close()
	limit, err := holdfastgrpc.NewServer(lim, holdfastgrpc.PeerIP())
	if err != nil {
		panic(err)
	}
	client, stop := dialExample([]grpc.ServerOption{grpc.UnaryInterceptor(limit.Unary())})
	defer stop()
	fmt.Println(try(client), try(client), try(client))
	// Output: OK OK ResourceExhausted
}

func ExampleMetadata() {
	lim := exampleLimit(1)
	defer lim.Close()
	limit, err := holdfastgrpc.NewServer(lim, holdfastgrpc.Metadata("x-user"), holdfastgrpc.WithMissingKey(holdfastgrpc.MissingUnauthenticated))
	if err != nil {
		panic(err)
	}
	client, stop := dialExample([]grpc.ServerOption{grpc.UnaryInterceptor(limit.Unary())})
	defer stop()
	fmt.Println(try(client, "x-user", "alice"), try(client, "x-user", "bob"), try(client))
	// Output: OK OK Unauthenticated
}

func ExampleAPIKey() {
	lim := exampleLimit(1)
	defer lim.Close()
	limit, err := holdfastgrpc.NewServer(lim, holdfastgrpc.APIKey(), holdfastgrpc.WithHook(func(_ context.Context, d holdfastgrpc.Decision) {
		fmt.Println(d.Key, d.Code)
	}))
	if err != nil {
		panic(err)
	}
	client, stop := dialExample([]grpc.ServerOption{grpc.UnaryInterceptor(limit.Unary())})
	defer stop()
	try(client, "authorization", "Bearer abc")
	// Output: key:ba7816bf8f01cfea414140de5dae2223 OK
}

func ExampleMethod() {
	lim := exampleLimit(1)
	defer lim.Close()
	limit, err := holdfastgrpc.NewServer(lim, holdfastgrpc.Method(), holdfastgrpc.WithShadow(), holdfastgrpc.WithHook(func(_ context.Context, d holdfastgrpc.Decision) {
		fmt.Println(d.Key, d.Code, d.Shadow)
	}))
	if err != nil {
		panic(err)
	}
	client, stop := dialExample([]grpc.ServerOption{grpc.UnaryInterceptor(limit.Unary())})
	defer stop()
	try(client)
	try(client)
	// Output:
	// /grpc.health.v1.Health/Check OK false
	// /grpc.health.v1.Health/Check ResourceExhausted true
}

func ExampleEveryone() {
	lim := exampleLimit(2)
	defer lim.Close()
	limit, err := holdfastgrpc.NewServer(lim, holdfastgrpc.Everyone(), holdfastgrpc.WithCost(func(_ context.Context, rpc holdfastgrpc.RPC) int {
		return len(rpc.Request.(*healthgrpc.HealthCheckRequest).GetService())
	}))
	if err != nil {
		panic(err)
	}
	client, stop := dialExample([]grpc.ServerOption{grpc.UnaryInterceptor(limit.Unary())})
	defer stop()
	for _, service := range []string{"ab", "c", "def"} {
		_, err := client.Check(context.Background(), &healthgrpc.HealthCheckRequest{Service: service})
		fmt.Println(status.Code(err))
	}
	// Output:
	// NotFound
	// ResourceExhausted
	// InvalidArgument
}
