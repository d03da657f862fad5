package httpclient

import (
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// hint is what a response's headers say about when to come back.
type hint struct {
	// asked says that the server named a wait that is meant for this request.
	asked bool
	// exhausted says that nothing is left of a quota until wait has passed.
	exhausted bool
	wait      time.Duration
	source    string // the header
}

// hintOf reads a response's headers. When a quota is reset is said on every
// response of many servers: it is a wait that this request was asked for only
// if it was refused by quota, or if nothing is left. Retry-After, which is about
// the request, takes precedence.
func hintOf(resp *http.Response, format retry.ResetFormat) hint {
	now := time.Time{}
	switch status := resp.StatusCode; {
	case status >= 400:
		if r, ok := retry.ParseRetryAfter(resp.Header, now); ok {
			return hint{asked: true, wait: r.Wait, source: r.Source}
		}
	case status < 200:
		return hint{}
	}
	q, ok := retry.ParseQuota(resp.Header, now, format)
	exhausted := q.Remaining == 0
	if !ok || !exhausted && resp.StatusCode != http.StatusTooManyRequests {
		return hint{}
	}
	return hint{asked: true, exhausted: exhausted, wait: q.Wait, source: q.Source}
}

// Wait returns how long to wait before the request of resp makes sense again:
// what the [Transport] found when it gave up, else what the headers ask for.
// It reports false if neither says anything. The response may come from any
// transport.
func Wait(resp *http.Response) (time.Duration, bool) {
	if e := GaveUp(resp); e != nil && e.Wait > 0 {
		return e.Wait, true
	}
	if resp == nil {
		return 0, false
	}
	h := hintOf(resp, retry.ResetGuess)
	return h.wait, h.asked
}
