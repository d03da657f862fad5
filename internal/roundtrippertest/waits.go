package roundtrippertest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"
)

func clientTimeoutHolds(t *testing.T, newTransport Make) {
	// A wait that does not fit.
	f := &fake{steps: []step{asks(429, "9")}}
	client := &http.Client{Transport: newTransport(t, f), Timeout: 5 * time.Second}
	start := time.Now()
	resp, err := client.Get("http://api.test/")
	if err != nil {
		t.Fatalf("error %v, want the 429", err)
	}
	resp.Body.Close()
	wantStatus(t, resp, 429)
	if d := time.Since(start); d > time.Second {
		t.Errorf("it took %v to give up", d)
	}

	// A server that does not answer.
	f = &fake{steps: []step{{hang: true}}}
	client = &http.Client{Transport: newTransport(t, f), Timeout: 5 * time.Second}
	start = time.Now()
	resp, err = client.Get("http://api.test/")
	if err == nil {
		resp.Body.Close()
		t.Fatal("no error")
	}
	var timeout interface{ Timeout() bool }
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("error %v is not a timeout", err)
	}
	if d := time.Since(start); d != 5*time.Second {
		t.Errorf("it ended after %v, want 5s", d)
	}
	f.wantSent(t, 1)
}

func cancelledNotRetried(t *testing.T, newTransport Make) {
	for _, status := range []int{0, 503} {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			calls++
			cancel()
			if status == 0 {
				return nil, r.Context().Err()
			}
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		})
		r, _ := newRequest(t, http.MethodGet, "")
		resp, err := newTransport(t, base).RoundTrip(r.WithContext(ctx))
		if err == nil {
			resp.Body.Close()
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		if calls != 1 {
			t.Errorf("status %s: tried %d times", strconv.Itoa(status), calls)
		}
	}
}
