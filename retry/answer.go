package retry

import (
	"net/http"
	"time"
)

// Answer is what a response says about another attempt.
type Answer struct {
	// Verdict is Final, Failed or Rejected.
	Verdict Verdict
	// Asked says that the server named a wait that is meant for this request: the
	// Hint, whose Remaining is 0 where it is the end of a quota. Without, the Hint
	// is zero.
	Asked bool
	// Scope names the quota that the wait is about, of those in [ParseScopes]; "" is
	// that it is about all requests of the caller.
	Scope string
	Hint
}

// ParseAnswer reads a response by its status and headers, whose names must be in
// canonical form.
//
// Every server is understood that keeps to RFC 9110: 429 is a rejection, and so are 503
// and 403 with a wait (a 503 without, or with no other than the end of a quota, may come
// from a proxy behind which the work was done; a 403 with a wait is how some reject by quota); 408, 500, 502, 504 and other 503
// are failures; the rest is final. The wait is that of [ParseRetryAfter], which is about
// the request. That of [ParseQuota], which many servers send with every response, counts
// only after 429 or where nothing is left, also beside a shorter one of what is no rejection. now and format are those of ParseQuota.
//
// On top of that there are dialects, listed in docs/providers.md: X-Should-Retry,
// Stripe-Should-Retry, X-Amz-Retry-After, and the statuses 425, 520 to 524 and 529. A
// server that says no retry is obeyed; one that asks for a retry makes of a final answer a
// failure, which is repeated only where that does no harm.
func ParseAnswer(status int, h http.Header, now time.Time, format ResetFormat) Answer {
	a := Answer{Verdict: Final}
	if status < 200 {
		return a
	}
	var quota string
	a.Hint, a.Asked, quota = waitOf(status, h, now, format)
	if a.Asked {
		a.Scope = scopeOfWait(status, h, quota)
	}
	if status < 400 {
		return a
	}
	a.Verdict = byStatus(status, a)
	if v := inDialect(status, h); v == Final || v > a.Verdict {
		a.Verdict = v
	}
	return a
}

// waitOf finds the wait that is meant for the request of a response. used is the header of
// a quota that is used up, or "".
func waitOf(status int, h http.Header, now time.Time, format ResetFormat) (hint Hint, asked bool, used string) {
	quota, ok := ParseQuota(h, now, format)
	if ok && quota.Remaining == 0 {
		used = quota.Source
	}
	if status >= 400 {
		hint, ok := ParseRetryAfter(h, now)
		// What is no rejection may say when to repeat it, and that its quota is used up for longer.
		if ok && (used == "" || hint.Wait >= quota.Wait || rejects(status)) {
			return hint, true, used
		}
	}
	if !ok || used == "" && status != http.StatusTooManyRequests {
		return Hint{}, false, ""
	}
	return quota, true, used
}

// rejects reports whether a response that names a wait is a rejection.
func rejects(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusForbidden || status == http.StatusServiceUnavailable
}

// byStatus sorts responses as RFC 9110 does, by the wait that the server named.
func byStatus(status int, a Answer) Verdict {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusForbidden && a.Asked:
		return Rejected
	case status == http.StatusServiceUnavailable && a.Asked && a.Remaining != 0:
		// Of who took the last unit of a quota, the work may have been done in part.
		return Rejected
	}
	switch status {
	case http.StatusRequestTimeout, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return Failed
	}
	return Final
}
