// Package holdfast is the root of Holdfast: rate limits that hold fast when
// Redis doesn't. It holds no code; start with package limiter.
//
//   - limiter: the distributed limiter, several limits at once, how many are in
//     flight, sampled fleets, and the limiter of this process alone
//   - fallback: what happens while Redis cannot decide
//   - breaker: the circuit breaker, and what each error of Redis means
//   - httpclient: an http.RoundTripper that keeps limits and retries within a
//     budget
//   - middleware: an http.Handler that keeps to limits and says so
//   - retry: backoff, budgets, and what servers say about when to come back
//   - httpclient/roundtrippertest: a conformance suite for such RoundTrippers
//   - limiter/limitertest: a conformance suite for limiters
package holdfast
