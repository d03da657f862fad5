// Package httpclient is an outbound [http.RoundTripper] for APIs with quotas. It keeps to
// published quotas, propagates a 429 to every goroutine and, with a distributed limiter,
// to every process, retries what is safe to retry within a budget, and sends to a failing
// host only what that host can serve.
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
// A 429, a 529, and a 503 or 403 with a wait, are rejections: any request is sent again. (The
// reset of a quota that is used up is no wait of a 503: the server may have done the work of
// the request that took the last unit.)
// Other 503, 408, 425, 500, 502, 504, 520 to 524, errors of the transport, and responses
// that ask for a retry by X-Should-Retry, Stripe-Should-Retry or X-Amz-Retry-After, are
// retried only for requests that may safely be repeated: GET, HEAD, OPTIONS, TRACE, PUT,
// DELETE, those with an Idempotency-Key header (as for net/http, also one without
// values, which is not sent), and those whose [Call] says so.
//
// A body is sent again only if the request's GetBody can create it again, or
// [WithBodyBuffer] has kept it. Certificates that cannot be verified, requests that cannot
// be sent, bodies whose Read fails or whose length differs from their ContentLength, and
// requests whose caller has cancelled are never retried. A response that is not retried is
// returned at once and its body is unread, also when it streams for hours or is a 101 to
// be written to; only a 429 in JSON, and with [WithProvider] what such servers answer, is
// looked into first.
//
// A response is as the server sent it: cookies of retried responses are not added to it,
// so that a cookie jar does not receive them, and each attempt has the cookies of the
// request. If a server's cookies matter between attempts, use [WithAttempts](1) and a
// retry above the http.Client, such as retry.Do.
//
// # How long it waits
//
// As long as the server says, in Retry-After or one of the headers that package
// retry knows, and up to half of that longer, at random; otherwise by backoff.
// A wait longer than [WithMaxWait], than what [WithMaxTotalWait] leaves, or than
// the time to the request's deadline is not begun: the response is returned at
// once, with the time to wait in [Wait] and the reason in [GaveUp].
//
// A 429 or 503 with a wait makes its key cool down, for at most an hour. So does any
// response that says that nothing is left of a quota until its reset; where a server has
// several quotas for one caller, only the requests that belong to that quota wait. A 429
// for an account without credit stops no other request: docs/providers.md has what is
// understood. Requests to that key wait until the cooldown ends. When the wait does not fit,
// they get at once a response like the one by which the server asked for it, a 429 if that was
// no rejection, with Retry-After and the header Holdfast-Not-Sent, or with [WithCooldownErrors] an [*Error]. After the cooldown, requests start
// again spread over half of its length, or of what is left of the longest wait ([WithMaxWait]) where that is shorter.
//
// # Layers above that retry
//
// SDKs that retry by themselves would multiply attempts. A request of a layer that says so
// is sent once, and the layer above decides about another one; limits, cooldowns and the
// throttle hold for each. These say so: X-Stainless-Retry-Count (OpenAI, Anthropic and
// others), Amz-Sdk-Request unless its max is 1, gccl-attempt-count in X-Goog-Api-Client, and
// an Idempotency-Key that was sent in the last two minutes, other than by a redirect. With
// X-Stripe-Client-User-Agent that holds for failures; rejections are retried here, as
// stripe-go does not.
// Attempts of [Call] overrides that, for SDKs whose own retries are off.
//
// A request that is signed for AWS does not wait beyond its signature: 5 minutes, or as a
// presigned URL says.
//
// # What is stored
//
// The transport stores the throttles and budgets of up to 4,096 hosts and the cooldowns of
// up to 65,536 keys and 16,384 of their quotas, 8,192 routes with quotas of their own, and
// 4,096 idempotency keys. With [WithDiscovery] it also stores what was learnt of 16,384 keys.
// A flood of hosts or keys never removes a cooldown or a host that is throttled. Beyond these
// numbers, a host has no throttle and shares a budget, and a cooldown applies only to the request that caused it.
package httpclient
