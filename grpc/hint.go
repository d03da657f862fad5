package holdfastgrpc

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/retry"
)

// maxDetails is how many details of a status are read: none that a server means
// has more.
const maxDetails = 16

// The sources of a wait that a server names.
const (
	sourceRetryInfo = "RetryInfo"
	sourcePushback  = pushbackKey
)

// hint is what a failed call says about when to come back.
type hint struct {
	asked  bool // the server named a wait, which may be 0
	never  bool // the server asks not to be asked again
	wait   time.Duration
	source string
}

// hintOf reads a status and a trailer. Of two waits the longer one counts. Proxies put their
// headers of HTTP into the trailer; those of a quota count only for a rejection, and where
// nothing else is said.
func hintOf(st *status.Status, trailer metadata.MD) (h hint) {
	if d, ok := retryInfo(st); ok {
		h.asked, h.wait, h.source = true, d, sourceRetryInfo
	}
	if d, never, ok := parsePushback(trailer[pushbackKey]); ok {
		if h.never = never; !never && (!h.asked || d > h.wait) {
			h.asked, h.wait, h.source = true, d, sourcePushback
		}
	}
	header := headerOf(trailer)
	if header == nil || h.never {
		return h
	}
	if r, ok := retry.ParseRetryAfter(header, time.Time{}); ok && (!h.asked || r.Wait > h.wait) {
		h.asked, h.wait, h.source = true, r.Wait, r.Source
	}
	if q, ok := retry.ParseQuota(header, time.Time{}, retry.ResetGuess); ok && !h.asked && st.Code() == codes.ResourceExhausted {
		h.asked, h.wait, h.source = true, q.Wait, q.Source
	}
	return h
}

// headerOf returns what a trailer has of the headers that package retry reads; nil is none.
func headerOf(trailer metadata.MD) (h http.Header) {
	for name, values := range trailer {
		if !strings.Contains(name, "retry-after") && !strings.Contains(name, "ratelimit") && !strings.Contains(name, "rate-limit") {
			continue
		}
		if h == nil {
			h = make(http.Header)
			for _, name := range [...]string{"date", "age"} {
				if v := trailer[name]; v != nil {
					h[http.CanonicalHeaderKey(name)] = v
				}
			}
		}
		h[http.CanonicalHeaderKey(name)] = values
	}
	return h
}

// parsePushback reads the values of the trailer grpc-retry-pushback-ms as gRFC A6 says:
// what is negative or cannot be parsed, as several values cannot, is that the call must
// not be retried. ok says that there is any.
func parsePushback(values []string) (d time.Duration, never, ok bool) {
	if len(values) == 0 {
		return 0, false, false
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil || ms < 0 || len(values) > 1 {
		return 0, true, true
	}
	return time.Duration(ms) * time.Millisecond, false, true
}

// retryInfo returns the delay of the first RetryInfo. One that is malformed or negative
// is none; one that is too large is the longest, as an HTTP Retry-After is.
func retryInfo(st *status.Status) (time.Duration, bool) {
	// Details would decode them all, of any type.
	details := st.Proto().GetDetails()
	for _, detail := range details[:min(len(details), maxDetails)] {
		var info errdetails.RetryInfo
		if !detail.MessageIs(&info) || detail.UnmarshalTo(&info) != nil {
			continue
		}
		if d := info.RetryDelay; d != nil && d.Seconds >= 0 && d.Nanos >= 0 && d.Nanos < 1e9 {
			return d.AsDuration(), true // which saturates
		}
	}
	return 0, false
}

// Wait returns how long to wait before the call that failed with err makes sense again:
// the RetryInfo of its status, such as a [Server] and an [Error] have. It reports false if
// there is none. err may come from any client and be wrapped.
func Wait(err error) (time.Duration, bool) {
	return retryInfo(status.Convert(err)) // that of an error without a status has no details
}
