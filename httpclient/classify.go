package httpclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/admission"
)

// isIdempotent reports whether doing the request twice is as good as once: by
// its method, by a key by which the server recognizes repetitions, or because the
// caller says so. The header's names are those that net/http honours, also where
// they have no values, by which it takes a request for idempotent without sending
// them.
func isIdempotent(req *http.Request, c Call) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace,
		http.MethodPut, http.MethodDelete:
		return true
	}
	_, key := req.Header["Idempotency-Key"]
	_, xKey := req.Header["X-Idempotency-Key"]
	return c.Idempotent || key || xKey
}

// errNothing is the error of a base that breaks its contract.
var errNothing = errors.New("httpclient: the base returned neither a response nor an error")

// permanent reports whether an error of the base will be the same next time,
// or is nothing that a retry should hide: a certificate that does not verify, a
// request that can't be sent. The host is not at fault then.
func permanent(err error) bool {
	switch {
	case isA[*tls.CertificateVerificationError](err), isA[tls.RecordHeaderError](err),
		isA[tls.AlertError](err), isA[x509.UnknownAuthorityError](err),
		isA[x509.HostnameError](err), isA[x509.CertificateInvalidError](err),
		isA[x509.SystemRootsError](err), isA[x509.ConstraintViolationError](err),
		isA[x509.InsecureAlgorithmError](err), isA[x509.UnhandledCriticalExtension](err),
		errors.Is(err, http.ErrSchemeMismatch), errors.Is(err, http.ErrSkipAltProtocol),
		errors.Is(err, errNothing),
		// By this side: net/http closes the connection of a request that it cannot write, and may return this instead of why.
		errors.Is(err, net.ErrClosed):
		return true
	}
	// net/http has no type for what it finds wrong with a request.
	return slices.ContainsFunc(unsendable, func(s string) bool { return strings.Contains(err.Error(), s) })
}

var unsendable = []string{
	"unsupported protocol scheme",
	"no Host in request URL",
	"http: nil Request.",
	"net/http: invalid ",
	"http: invalid ",
	"http2: invalid ", // a header that HTTP/2 does not have, such as Upgrade
	"http2: request header list larger than peer's advertised limit",
	"invalid Trailer key",
	"net/http: can't write control character in Request.URL",
	"http: Request.ContentLength=", // with a nil body
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// evidenceOfStatus: a rejection by quota says nothing about the host's health, and
// a failure nothing if it answers half a request: one whose body failed, or did not come.
func evidenceOfStatus(status int, up *upload) admission.Evidence {
	switch {
	case status == http.StatusTooManyRequests:
		return 0
	case status >= 500 && status != http.StatusNotImplemented && status != http.StatusHTTPVersionNotSupported:
		if up.broken() || up.stalled() {
			return 0
		}
		return admission.Failed
	default:
		return admission.Accepted
	}
}

// fairTime is how long an attempt must have lasted for the caller's deadline to
// be evidence against the host. Callers that give less should set
// [WithAttemptTimeout], which is the same for all callers.
const fairTime = time.Second

// evidenceOfError classifies an error of the base after an attempt that took took.
// callerGone is the error of a caller who has given up, or nil.
func evidenceOfError(err, callerGone error, took time.Duration, up *upload) admission.Evidence {
	switch {
	case up.broken(), errors.Is(err, context.Canceled), permanent(err):
		return 0
	case callerGone != nil && (!errors.Is(callerGone, context.DeadlineExceeded) || took < fairTime):
		return 0
	case (callerGone != nil || isTimeout(err)) && up.stalled():
		return 0
	default:
		return admission.Failed
	}
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}
