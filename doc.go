// Package holdfast is the root of Holdfast: rate limits that hold fast when Redis doesn't.
// It holds no code; start with package limiter.
//
// Processes share a limit through Redis. While Redis is down, slow or emptied, each
// process continues within its share of the limit, by the same algorithm, and no decision
// takes longer than its budget.
//
//   - [github.com/holdfast-go/holdfast/limiter]: the limiter, with seven algorithms;
//     several limits at once, and limiters of one process
//   - [github.com/holdfast-go/holdfast/semaphore]: limits on how many run at once
//   - [github.com/holdfast-go/holdfast/sampled]: limits for fleets too large for a call to
//     Redis per decision
//   - [github.com/holdfast-go/holdfast/httpclient]: an http.RoundTripper for APIs with
//     quotas: limits, cooldowns, throttles, and retries within a budget
//   - [github.com/holdfast-go/holdfast/middleware]: limits for an http.Handler, with
//     RateLimit headers
//   - [github.com/holdfast-go/holdfast/grpc]: both for gRPC; a module of its own
//   - [github.com/holdfast-go/holdfast/otel]: metrics and traces by OpenTelemetry; a module
//     of its own
//   - [github.com/holdfast-go/holdfast/analytics]: the keys that are denied most
//   - [github.com/holdfast-go/holdfast/retry]: backoff, budgets, and parsers for what servers
//     say about retries
//   - [github.com/holdfast-go/holdfast/fallback]: the policy while Redis cannot decide
//   - [github.com/holdfast-go/holdfast/breaker]: the circuit breaker, and the class of each
//     error of Redis
//   - [github.com/holdfast-go/holdfast/limiter/limitertest]: the conformance suite of
//     limiters
//
// [The documents], by the question that each of them answers.
//
// [The documents]: https://github.com/holdfast-go/holdfast/blob/main/docs/README.md
package holdfast
