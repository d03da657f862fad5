package roundtrippertest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"testing"
)

func postNotRetriedOn500(t *testing.T, newTransport Make) {
	for _, status := range []int{408, 500, 502, 504} {
		f := &fake{steps: []step{{status: status, body: "no"}, {status: 200}}}
		r, b := newRequest(t, http.MethodPost, "hello")
		resp := do(t, newTransport(t, f), r)
		wantStatus(t, resp, status)
		if got := finish(t, resp); got != "no" {
			t.Errorf("body %q", got)
		}
		f.wantSent(t, 1)
		b.wantClosed(t)
	}
}

func postNotRetriedOnErrors(t *testing.T, newTransport Make) {
	reset := errors.New("read: connection reset by peer")
	f := &fake{steps: []step{{err: reset}, {status: 200}}}
	r, b := newRequest(t, http.MethodPost, "hello")
	if err := fails(t, newTransport(t, f), r); !errors.Is(err, reset) {
		t.Errorf("error %v, want that of the base", err)
	}
	f.wantSent(t, 1)
	b.wantClosed(t)
}

func postRetriedOn429(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 429, header: map[string]string{"Retry-After": "1"}}, {status: 200}}}
	r, b := newRequest(t, http.MethodPost, "hello")
	resp := do(t, newTransport(t, f), r)
	resp.Body.Close()
	wantStatus(t, resp, 200)
	f.wantSent(t, 2)
	b.wantClosed(t)
}

func idempotencyKeyPermits(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 502}, {status: 200}}}
	r, _ := newRequest(t, http.MethodPost, "hello")
	r.Header.Set("Idempotency-Key", "8e03978e")
	resp := do(t, newTransport(t, f), r)
	resp.Body.Close()
	wantStatus(t, resp, 200)
	f.wantSent(t, 2)
	for i, s := range f.sent() {
		if s.header.Get("Idempotency-Key") != "8e03978e" {
			t.Errorf("attempt %d has the headers %v", i+1, s.header)
		}
	}
}

func errorsRetried(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{err: errRefused}, {status: 200}}}
	r, _ := newRequest(t, http.MethodGet, "")
	resp := do(t, newTransport(t, f), r)
	resp.Body.Close()
	wantStatus(t, resp, 200)
	f.wantSent(t, 2)
}

func certificateErrorsFinal(t *testing.T, newTransport Make) {
	for _, cause := range []error{
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		x509.UnknownAuthorityError{},
		x509.HostnameError{Certificate: new(x509.Certificate), Host: "api.test"},
		x509.CertificateInvalidError{Reason: x509.Expired},
	} {
		f := &fake{steps: []step{{err: fmt.Errorf("tls: %w", cause)}}}
		r, _ := newRequest(t, http.MethodGet, "")
		fails(t, newTransport(t, f), r)
		f.wantSent(t, 1)
	}
}

func unknownSchemeFinal(t *testing.T, newTransport Make) {
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	calls := 0
	base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		calls++
		return tr.RoundTrip(r)
	})
	r, _ := newRequest(t, http.MethodGet, "")
	r.URL.Scheme = "gopher"
	fails(t, newTransport(t, base), r)
	if calls > 1 {
		t.Errorf("it was tried %d times", calls)
	}
}

func lastErrorReturned(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{err: errRefused}}}
	r, b := newRequest(t, http.MethodPut, "hello")
	if err := fails(t, newTransport(t, f), r); !errors.Is(err, errRefused) {
		t.Errorf("error %v, want that of the base", err)
	}
	if n := len(f.sent()); n < 3 || n > 20 {
		t.Errorf("it was tried %d times, want 3 to 20", n)
	}
	b.wantClosed(t)
}

func nilURL(t *testing.T, newTransport Make) {
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	r, b := newRequest(t, http.MethodPut, "hello")
	r.URL = nil
	fails(t, newTransport(t, tr), r)
	b.wantClosed(t)
}
