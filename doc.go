// Package holdfast is the root of Holdfast: rate limits that hold fast when Redis doesn't.
// It holds no code; start with package limiter.
//
// Processes share a limit through Redis. While Redis is down, slow or emptied, each goes
// on within its share of the limit, by the same algorithm, and no decision takes longer
// than its budget.
//
//   - [github.com/holdfast-go/holdfast/limiter]: the limiter, with seven algorithms;
//     several limits at once, how many are in flight, sampled fleets, and the limiter of
//     this process alone
//   - [github.com/holdfast-go/holdfast/httpclient]: an http.RoundTripper for APIs with
//     quotas: limits, cooldowns, throttles, and retries within a budget
//   - [github.com/holdfast-go/holdfast/middleware]: an http.Handler that keeps to limits,
//     and says so in headers
//   - [github.com/holdfast-go/holdfast/grpc]: both for gRPC; a module of its own
//   - [github.com/holdfast-go/holdfast/otel]: metrics and traces by OpenTelemetry; a module
//     of its own
//   - [github.com/holdfast-go/holdfast/analytics]: which keys are denied most
//   - [github.com/holdfast-go/holdfast/retry]: backoff, budgets, and what servers say about
//     when to come back
//   - [github.com/holdfast-go/holdfast/fallback]: what happens while Redis cannot decide
//   - [github.com/holdfast-go/holdfast/breaker]: the circuit breaker, and what each error
//     of Redis means
//   - [github.com/holdfast-go/holdfast/limiter/limitertest] and
//     [github.com/holdfast-go/holdfast/httpclient/roundtrippertest]: conformance suites for
//     limiters and for RoundTrippers
//
// The documents: [which to choose], [how it works], [what is guaranteed], [running it].
//
// [which to choose]: https://github.com/holdfast-go/holdfast/blob/main/docs/choosing.md
// [how it works]: https://github.com/holdfast-go/holdfast/blob/main/docs/architecture.md
// [what is guaranteed]: https://github.com/holdfast-go/holdfast/blob/main/docs/guarantees.md
// [running it]: https://github.com/holdfast-go/holdfast/blob/main/docs/operations.md
package holdfast
