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
	"testing"
	"testing/synctest"
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
	{name: "the request is not modified", run: requestNotModified},
	{name: "a sent body is closed", run: sentBodyClosed},
	{name: "an unsent body is closed", run: unsentBodyClosed},
	{name: "GetBody is for the second attempt", run: getBodyFromSecondAttempt},
	{name: "a body without GetBody is sent once", run: pipeSentOnce},
	{name: "a body that fails to replay", run: replayFails},
	{name: "NoBody is replayed", run: noBodyReplayed},
	{name: "ContentLength is kept", run: contentLengthKept},

	{name: "a response means a nil error", run: responseMeansNilError},
	{name: "the last response is whole", run: lastResponseWhole},
	{name: "a large last response is whole", run: largeLastResponseWhole},
	{name: "dropped responses are closed", run: droppedResponsesClosed},
	{name: "redirects are not followed", run: redirectsNotFollowed},
	{name: "a success is not delayed", run: successNotDelayed},
	{name: "a cut body is not retried", run: cutBodyNotRetried},
	{name: "other statuses are final", run: otherStatusesFinal},

	{name: "a POST is not retried on 500", run: postNotRetriedOn500},
	{name: "a POST is not retried on errors", run: postNotRetriedOnErrors},
	{name: "a POST is retried on 429", run: postRetriedOn429},
	{name: "an Idempotency-Key permits retries", run: idempotencyKeyPermits},
	{name: "errors of a GET are retried", run: errorsRetried},
	{name: "certificate errors are not retried", run: certificateErrorsFinal},
	{name: "unknown schemes are not retried", run: unknownSchemeFinal},
	{name: "the last error is returned", run: lastErrorReturned},
	{name: "a nil URL", run: nilURL},

	{name: "Retry-After in seconds", run: retryAfterSeconds},
	{name: "Retry-After as a date", run: retryAfterDates},
	{name: "Retry-After beyond the cap", run: retryAfterBeyondCap},
	{name: "Retry-After that overflows", run: retryAfterOverflows},
	{name: "Retry-After that is garbage", run: retryAfterGarbage},
	{name: "a wait beyond the deadline is not begun", run: noWaitBeyondDeadline},
	{name: "cancelling ends a wait", run: cancelEndsWait},
	{name: "the cause of cancelling is kept", run: cancelDuringSend},
	{name: "Request.Cancel ends a wait", run: requestCancelEndsWait},
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
