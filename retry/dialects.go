package retry

import (
	"net/http"
	"strings"
	"time"
)

// dialectStatuses are what families of servers say by a status beyond RFC 9110. Waits in
// dialects are read by ParseRetryAfter and ParseQuota. Examples of each are in
// testdata/dialects.
var dialectStatuses = map[int]Verdict{
	// RFC 8470: the server does not want to process a request that might be a replay.
	http.StatusTooEarly: Failed,
	// Cloudflare has these for an origin that gives no answer (520), rejects the connection
	// (521), does not take it in time (522), cannot be reached (523) or does not answer in time
	// (524). 525 to 530 are configuration, which another attempt does not repair.
	520: Failed, 521: Failed, 522: Failed, 523: Failed, 524: Failed,
	// Overload, by which Anthropic and others turn a request away, for any caller.
	529: Rejected,
}

// shouldRetryHeaders say whether to try again. The first is that of the SDKs which Stainless
// generates, for OpenAI, Anthropic and others. Stripe has its own, for instance after a lock
// timeout (409), or after a failure whose outcome is stored under the idempotency key. "true"
// does not say whether the work was done: Stripe and the like expect a key by which they
// recognize repetitions.
var shouldRetryHeaders = [...]string{"X-Should-Retry", "Stripe-Should-Retry"}

// inDialect returns what a response with a status from 400 on says beyond RFC 9110: Default is
// nothing, and Final that the server forbids another attempt.
func inDialect(status int, h http.Header) Verdict {
	v := dialectStatuses[status]
	// AWS answers 400 to calls that it throttles; with a wait, such a call is worth another
	// attempt.
	if _, ok := decimal(first(h, amzRetryAfter), time.Millisecond); ok {
		v = max(v, Failed)
	}
	for _, name := range shouldRetryHeaders {
		switch said := first(h, name); {
		case strings.EqualFold(said, "true"):
			v = max(v, Failed)
		case strings.EqualFold(said, "false"):
			return Final
		}
	}
	return v
}
