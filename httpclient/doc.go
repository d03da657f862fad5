// Package httpclient is an outbound [http.RoundTripper] that a whole fleet can
// trust: it keeps to published quotas, makes one 429 a fact for every goroutine
// and, with a distributed limiter, for every process, retries what is safe to
// retry within a budget, and sends hosts that fail only what they can do.
//
//	client, err := httpclient.NewClient()
//	resp, err := client.Get("https://api.example.com/v1/things")
//
// Each attempt passes, in this order, the key's cooldown (the server asked for
// a pause), the host's throttle ([WithThrottle]), and the limiter
// ([WithLimiter]); then it is sent through the base transport.
//
// # What is retried
//
// A 429, a 529, and a 503 or 403 with a wait, are rejections: any request is sent
// again. Other 503, 408, 425, 500, 502, 504, 520 to 524 and errors of the
// transport, and what the server by X-Should-Retry, Stripe-Should-Retry or
// X-Amz-Retry-After wants retried, are retried only for requests that do no harm when done twice: GET, HEAD, OPTIONS, TRACE, PUT,
// DELETE, those with an Idempotency-Key header (as for net/http, also one without
// values, which is not sent), and those whose [Call] says so.
// A body is sent again only if the request's GetBody can make it anew, or
// [WithBodyBuffer] has kept it. Certificates that do not verify, requests that
// cannot be sent, bodies whose Read fails or that are not as long as their
// ContentLength, and callers who cancelled are never retried. Nothing is done
// with a response that is not retried: it is returned at once, its body unread,
// whether it streams for hours or is a 101 to be written to.
//
// A response is as the server sent it: cookies of responses that were retried are
// not added to it, so that a cookie jar does not see them, and each attempt has
// the cookies of the request. A server whose cookies matter between attempts needs
// [WithAttempts](1) and a retry above the http.Client, such as retry.Do.
//
// # How long it waits
//
// As long as the server says, in Retry-After or one of the headers that package
// retry knows, and up to half of that longer, at random; otherwise by backoff.
// A wait longer than [WithMaxWait], than what [WithMaxTotalWait] leaves, or than
// the time to the request's deadline is not begun: the response is returned at
// once, with the time to wait in [Wait] and the reason in [GaveUp].
//
// A 429 or 503 with a wait makes its key cool down, as does any response that
// says that nothing is left of a quota until its reset, for at most an hour.
// Requests to that key wait it out, or fail at once with an [*Error] when the
// wait does not fit, which has the wait that the server named; they come back
// spread over half of the cooldown's length.
//
// # What is remembered
//
// Throttles and budgets of up to 4,096 hosts and the cooldowns of up to 65,536
// keys. A flood of hosts or keys never makes it forget a host that is
// throttled or a cooldown: for what is beyond, a host has no throttle and shares
// a budget, and a cooldown holds only for the request that met it.
package httpclient
