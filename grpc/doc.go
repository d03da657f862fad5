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
// Any limiter.Allower decides: a Limiter, a Local, a Sampled or, on the server, a Multi,
// whose part that denied is named.
//
// # What a server answers
//
// A call beyond the limit gets codes.ResourceExhausted with two details: RetryInfo, the
// exact time until it could be admitted, never 0, and QuotaFailure, whose subject is the
// policy. The trailer grpc-retry-pushback-ms says the time in whole milliseconds, rounded
// up, so that clients of every language wait for it by their own retry policies (gRFC
// A6); one that does not fit its 32 bits is -1, not to retry. No headers are sent before,
// since clients retry only what has none.
//
// A call without a key gets codes.InvalidArgument, or what [WithMissingKey] says; so does
// a cost that is negative or above the limit. A limiter that is closed, or that fails
// closed without Redis, is codes.Unavailable, and one that breaks codes.Internal. No
// rejection has a key or a cause in it.
//
// A stream is decided on once, when it is opened. With [WithConcurrency] a call or stream
// holds a slot until its handler returns.
//
// # What a client does
//
// Before a call is sent, and before a stream is opened, it waits for the key's cooldown
// and then for the limiter ([WithLimiter]).
//
// A codes.ResourceExhausted or codes.Unavailable that names a wait, by RetryInfo or by
// the trailer, makes its key cool down for that long, for at most an hour: of the two the
// longer one. All calls and streams of that key then wait, or fail at once with an
// [*Error] when the wait does not fit; they come back spread over half of the cooldown's
// length. With a distributed limiter the whole fleet cools down.
//
// Unary calls are tried again after codes.ResourceExhausted with a wait; without one, that
// may as well say that a message is too large, which another attempt would not mend. They
// are tried again after codes.Unavailable where doing the work twice is excluded or
// harmless: nothing was sent, as there was no connection; the server named a wait; or the
// method is one of [WithIdempotent]. Otherwise the server may have done the work before
// the connection broke, and the error is returned; [Hooks.GiveUp] is called
// with [NotIdempotent]. [WithRetryIf] replaces these rules.
//
// A trailer that is negative, malformed or there twice asks for no retry, and there is
// none. A call waits as long as the server says, and up to half of that longer, at random;
// where the server says nothing, or 0, by backoff, and after codes.ResourceExhausted for at
// least a second. A RetryInfo that is too large to represent is the longest wait. A wait
// longer than [WithMaxWait], than what [WithMaxTotalWait] leaves, or than the time to the
// deadline is not begun: the last error is returned at once.
//
// Streams are not opened again once they were opened, but what their end says is learnt.
//
// # Retries of gRPC itself
//
// grpc-go retries by itself where a service config has a retryPolicy. It does so inside
// of each attempt that is made here: it obeys the trailer, but neither the limiter, the
// cooldown nor the budget, and the numbers of attempts multiply. Use one of the two: take
// the policy out, dial with grpc.WithDisableRetry(), or set [WithAttempts](1) here.
// What grpc-go does in any case, for a call that certainly reached no server, does not
// matter.
package holdfastgrpc
