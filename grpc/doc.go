// Package holdfastgrpc limits gRPC calls: those that a server serves, and those that a
// client sends.
//
//	limit, err := holdfastgrpc.NewServer(lim, holdfastgrpc.PeerIP())
//	...
//	srv := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary()), grpc.StreamInterceptor(limit.Stream()))
//
//	pace, err := holdfastgrpc.NewClient(holdfastgrpc.WithLimiter(lim))
//	...
//	cc, err := grpc.NewClient(addr, grpc.WithUnaryInterceptor(pace.Unary()), grpc.WithStreamInterceptor(pace.Stream()))
//
// Any limiter.Allower can decide: a limiter.Limiter, a sampled.Limiter or, on the server, a
// Multi; the rejection names the part that denied.
//
// # What a server answers
//
// A call beyond the limit gets codes.ResourceExhausted with two details: RetryInfo, the
// exact time until it could be admitted, never 0, and QuotaFailure, whose subject is the
// policy. The trailer grpc-retry-pushback-ms has the time in whole milliseconds, rounded
// up, so that clients of every language wait for it by their own retry policies (gRFC
// A6). A time that does not fit into its 32 bits becomes -1, which forbids a retry. The
// server sends no headers before, because clients retry only calls without headers.
//
// A call without a key gets codes.InvalidArgument, or what [WithMissingKey] says; a call
// with a negative cost, or a cost above the limit, gets codes.InvalidArgument too. A
// limiter that is closed, or that fails closed without Redis, results in
// codes.Unavailable; any other error of the limiter results in codes.Internal. No
// rejection contains a key or a cause.
//
// A stream is decided once, when it is opened. With [WithConcurrency] a call or stream
// holds a permit until its handler returns.
//
// # What a client does
//
// Before a call is sent, and before a stream is opened, it waits for the key's cooldown
// and then for the limiter ([WithLimiter]). A target that fails most of the time is sent
// only some of the calls ([WithThrottle]); the others end at once with codes.Unavailable.
//
// A codes.ResourceExhausted or codes.Unavailable that names a wait, by RetryInfo or by
// the trailer, makes its key cool down for that long, for at most an hour. When both name
// a wait, the longer one counts. Proxies such as Envoy put headers of HTTP into the trailer:
// Retry-After and its like count as well, and after codes.ResourceExhausted, where nothing
// else is said, the reset of a quota. All calls and streams of that key then wait, or fail at
// once with an [*Error] when the wait does not fit. After the cooldown they start again
// spread over half of its length. With a distributed limiter the whole fleet cools down.
//
// Unary calls are retried after codes.ResourceExhausted with a wait. Without a wait, that
// code may also mean that a message is too large, which another attempt would not change.
// Unary calls are retried after codes.Unavailable where the work cannot be done twice, or
// may safely be: nothing was sent, because there was no connection; the server named a
// wait; or the method is one of [WithIdempotent]. Otherwise the server may have done the
// work before the connection broke, and the error is returned; [Hooks.GiveUp] receives
// [retry.NotIdempotent]. [WithRetryIf] replaces these rules.
//
// A trailer that is negative, malformed or present twice forbids a retry, and there is
// none. A call waits as long as the server says, and up to half of that longer, at random.
// Where the server says nothing, or 0, the call waits by backoff, and after
// codes.ResourceExhausted for at least a second. A RetryInfo that is too large to
// represent counts as the longest wait. A wait longer than [WithMaxWait], than what
// [WithMaxTotalWait] leaves, or than the time to the deadline is not begun: the last error
// is returned at once.
//
// An opened stream is not opened again, but a wait that its end names makes the key cool
// down.
//
// # Retries of gRPC itself
//
// grpc-go retries by itself where a service config has a retryPolicy. It does so inside
// each attempt of this package: it obeys the trailer, but not the limiter, the cooldown or
// the budget, and the numbers of attempts multiply. Use one of the two: remove the policy,
// dial with grpc.WithDisableRetry(), or set [WithAttempts](1) here. The transparent
// retries of grpc-go, of calls that certainly reached no server, do not matter.
package holdfastgrpc
