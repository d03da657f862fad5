// Package roundtrippertest is a conformance suite for every [http.RoundTripper] that
// wraps another one and retries. Run it from a test:
//
//	func TestConformance(t *testing.T) {
//		roundtrippertest.Run(t, func(t *testing.T, base http.RoundTripper) http.RoundTripper {
//			return newMyTransport(t, base)
//		})
//	}
//
// Waits use the time of testing/synctest, so the suite is fast whatever the wrapper's
// backoff is, and it detects every leaked goroutine.
package roundtrippertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Run runs the suite: one subtest for each case.
func Run(t *testing.T, newTransport Make) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.real {
				c.run(t, newTransport)
				return
			}
			synctest.Test(t, func(t *testing.T) { c.run(t, newTransport) })
		})
	}
}

// Names returns the names of the cases, in the order in which they run.
func Names() []string {
	names := make([]string, len(cases))
	for i, c := range cases {
		names[i] = c.name
	}
	return names
}

type testCase struct {
	name string
	run  func(*testing.T, Make)
	real bool // on real sockets, in real time
}

var cases = []testCase{
	{name: "the request is not modified", run: all(
		put(scenario{change: oddHeader, status: 200, sent: 1}, answers(200)...),
		put(scenario{change: oddHeader, status: 200, sent: 3}, answers(503, 429, 200)...),
		put(scenario{change: oddHeader, status: 503}, answers(503)...),
	)},
	{name: "a sent body is closed", run: all(
		put(scenario{status: 200, sent: 1}, answers(200)...),
		put(scenario{status: 200, sent: 3}, answers(503, 503, 200)...),
		put(scenario{status: 503}, answers(503)...),
		put(scenario{errs: []error{errRefused}}, step{err: errRefused}),
	)},
	{name: "an unsent body is closed", run: unsentBodyClosed},
	{name: "GetBody is for the second attempt", run: getBodyFromSecondAttempt},
	{name: "a body without GetBody is sent once", run: pipeSentOnce},
	{name: "a body that fails to replay", run: replayFails},
	{name: "NoBody is replayed", run: all(scenario{method: http.MethodPut, steps: answers(503, 200), status: 200, sent: 2,
		change: func(_ *testing.T, r *http.Request) *http.Request {
			r.Body = http.NoBody
			return r
		}})},
	{name: "ContentLength is kept", run: all(scenario{method: http.MethodPut, body: strings.Repeat("x", 1000), steps: answers(503, 503, 200), status: 200, sent: 3})},

	{name: "a response means a nil error", run: each([]int{408, 429, 500, 502, 503, 504}, func(status int) scenario {
		return scenario{steps: []step{{status: status, body: "no"}}, status: status, reads: "no"}
	})},
	{name: "the last response is whole", run: lastResponseWhole},
	{name: "a large last response is whole", run: each([]string{strings.Repeat("0123456789abcdef", 64<<10)}, func(text string) scenario {
		return scenario{steps: []step{{status: 503, body: text}}, status: 503, reads: text}
	})},
	{name: "dropped responses are closed", run: droppedResponsesClosed},
	{name: "redirects are not followed", run: each([]int{301, 302, 303, 307, 308}, func(status int) scenario {
		return scenario{steps: []step{{status: status, header: map[string]string{"Location": "/other"}}}, status: status, sent: 1}
	})},
	{name: "a success is not delayed", run: successNotDelayed},
	{name: "a cut body is not retried", run: cutBodyNotRetried},
	{name: "other statuses are final", run: each([]int{200, 201, 204, 206, 304, 400, 401, 404, 409, 422, 501, 505}, func(status int) scenario {
		return scenario{steps: answers(status), status: status, sent: 1}
	})},

	{name: "a POST is not retried on 500", run: each([]int{408, 500, 502, 504}, func(status int) scenario {
		return post(scenario{status: status, reads: "no", sent: 1}, step{status: status, body: "no"}, step{status: 200})
	})},
	{name: "a POST is not retried on errors", run: all(post(scenario{errs: []error{errReset}, sent: 1}, step{err: errReset}, step{status: 200}))},
	{name: "a POST is retried on 429", run: all(post(scenario{status: 200, sent: 2}, asks(429, "1"), step{status: 200}))},
	{name: "an Idempotency-Key permits retries", run: all(post(scenario{status: 200, sent: 2, change: func(_ *testing.T, r *http.Request) *http.Request {
		r.Header.Set("Idempotency-Key", "8e03978e")
		return r
	}}, answers(502, 200)...))},
	{name: "errors of a GET are retried", run: all(scenario{steps: []step{{err: errRefused}, {status: 200}}, status: 200, sent: 2})},
	{name: "certificate errors are not retried", run: each([]error{
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		x509.UnknownAuthorityError{},
		x509.HostnameError{Certificate: new(x509.Certificate), Host: "api.test"},
		x509.CertificateInvalidError{Reason: x509.Expired},
	}, func(cause error) scenario {
		return scenario{steps: []step{{err: fmt.Errorf("tls: %w", cause)}}, errs: []error{cause}, sent: 1}
	})},
	{name: "unknown schemes are not retried", run: unknownSchemeFinal},
	{name: "the last error is returned", run: all(put(scenario{errs: []error{errRefused}}, step{err: errRefused}))},
	{name: "a nil URL", run: nilURL},

	{name: "Retry-After in seconds", run: all(
		scenario{steps: []step{asks(429, "1"), {status: 200}}, status: 200, sent: 2, gap: time.Second},
		scenario{steps: []step{asks(429, " 3 "), {status: 200}}, status: 200, sent: 2, gap: 3 * time.Second},
		scenario{steps: []step{asks(429, "10"), {status: 200}}, status: 200, sent: 2, gap: 10 * time.Second},
		scenario{steps: []step{asks(503, "1"), {status: 200}}, status: 200, sent: 2, gap: time.Second},
		scenario{steps: []step{asks(503, " 3 "), {status: 200}}, status: 200, sent: 2, gap: 3 * time.Second},
		scenario{steps: []step{asks(503, "10"), {status: 200}}, status: 200, sent: 2, gap: 10 * time.Second},
	)},
	{name: "Retry-After as a date", run: retryAfterDates},
	{name: "Retry-After beyond the cap", run: all(scenario{steps: []step{asks(429, "3600"), {status: 200}}, status: 429, reads: "later", sent: 1, atOnce: true})},
	// What is too large to represent is the longest wait (RFC 9111 section 1.2.2), and so
	// beyond every cap.
	{name: "Retry-After that overflows", run: each([]string{
		"9223372036854775807", "9223372036", "9223372037", "18446744073709551616", "99999999999999999999999999",
	}, func(wait string) scenario {
		return scenario{steps: []step{asks(429, wait), {status: 200}}, status: 429, sent: 1}
	})},
	{name: "Retry-After that is garbage", run: each([]string{
		"", "soon", "-1", "-9223372036854775808", "1.5e400", "0x10", "Mon, 99 Foo 2020", "NaN", "\x00",
	}, func(wait string) scenario { // by ordinary backoff
		return scenario{steps: []step{asks(429, wait), {status: 200}}, status: 200, sent: 2}
	})},
	{name: "a wait beyond the deadline is not begun", run: all(scenario{steps: []step{asks(429, "5"), {status: 200}}, status: 429, reads: "later", sent: 1, atOnce: true,
		change: func(t *testing.T, r *http.Request) *http.Request {
			ctx, cancel := context.WithTimeout(r.Context(), 4*time.Second)
			t.Cleanup(cancel)
			return r.WithContext(ctx)
		}})},
	{name: "cancelling ends a wait", run: all(put(scenario{errs: []error{context.Canceled}, sent: 1, took: 2 * time.Second,
		change: func(_ *testing.T, r *http.Request) *http.Request {
			ctx, cancel := context.WithCancel(r.Context())
			time.AfterFunc(2*time.Second, cancel)
			return r.WithContext(ctx)
		}}, asks(429, "9")))},
	{name: "the cause of cancelling is kept", run: all(scenario{steps: []step{{hang: true}}, errs: []error{context.Canceled, errLeft}, sent: 1,
		change: func(_ *testing.T, r *http.Request) *http.Request {
			ctx, cancel := context.WithCancelCause(r.Context())
			time.AfterFunc(time.Second, func() { cancel(errLeft) })
			return r.WithContext(ctx)
		}})},
	{name: "Request.Cancel ends a wait", run: all(scenario{steps: []step{asks(429, "9")}, errs: []error{context.Canceled, context.DeadlineExceeded}, sent: 1, took: 2 * time.Second,
		change: func(_ *testing.T, r *http.Request) *http.Request {
			done := make(chan struct{})
			r.Cancel = done //nolint:staticcheck // that is the case
			time.AfterFunc(2*time.Second, func() { close(done) })
			return r
		}})},
	{name: "Client.Timeout holds", run: clientTimeoutHolds},
	{name: "a cancelled request is not retried", run: cancelledNotRetried},

	{name: "connections are reused", run: connectionsReused},
	{name: "nothing is left of 1000 calls", run: nothingLeft},
	{name: "trailers are kept", run: trailersKept},
	{name: "idle connections can be closed", run: closeIdlePassesThrough},
	{name: "101 is writable", run: switchingIsWritable, real: true},
	{name: "streams arrive as they are sent", run: streamsArrive, real: true},
	{name: "HTTP/2", run: http2, real: true},
	{name: "TLS certificates are verified once", run: tlsVerifiedOnce, real: true},
}
