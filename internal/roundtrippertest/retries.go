package roundtrippertest

import (
	"net/http"
	"testing"
)

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

func nilURL(t *testing.T, newTransport Make) {
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	r, b := newRequest(t, http.MethodPut, "hello")
	r.URL = nil
	fails(t, newTransport(t, tr), r)
	b.wantClosed(t)
}
