// Package holdfast is the root of Holdfast: rate limits that hold fast when
// Redis doesn't. It holds no code; start with package limiter.
//
//   - limiter: the distributed limiter, and the one of this process alone
//   - fallback: what happens while Redis cannot decide
//   - breaker: the circuit breaker, and what each error of Redis means
//   - limiter/limitertest: a conformance suite for limiters
package holdfast
