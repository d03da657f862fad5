package roundtrippertest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"
)

func retryAfter(v string) map[string]string { return map[string]string{"Retry-After": v} }

// wantGap fails the test unless the second request came between least and most
// after the first.
func wantGap(t *testing.T, f *fake, least, most time.Duration) {
	t.Helper()
	calls := f.sent()
	if len(calls) < 2 {
		t.Fatalf("it was tried %d times, want at least 2", len(calls))
	}
	if d := calls[1].at.Sub(calls[0].at); d < least || d > most {
		t.Errorf("tried again after %v, want %v to %v", d, least, most)
	}
}

func retryAfterSeconds(t *testing.T, newTransport Make) {
	for _, status := range []int{429, 503} {
		for _, v := range []string{"1", " 3 ", "10"} {
			f := &fake{steps: []step{{status: status, header: retryAfter(v)}, {status: 200}}}
			r, _ := newRequest(t, http.MethodGet, "")
			resp := do(t, newTransport(t, f), r)
			resp.Body.Close()
			wantStatus(t, resp, 200)
			n := time.Duration(map[string]int{"1": 1, " 3 ": 3, "10": 10}[v]) * time.Second
			wantGap(t, f, n, 2*n)
		}
	}
}

func retryAfterDates(t *testing.T, newTransport Make) {
	for _, layout := range []string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		now := time.Now().UTC()
		at := now.Add(8 * time.Second).Truncate(time.Second)
		f := &fake{steps: []step{{status: 503, header: map[string]string{
			"Retry-After": at.Format(layout), "Date": now.Format(http.TimeFormat),
		}}, {status: 200}}}
		r, _ := newRequest(t, http.MethodGet, "")
		resp := do(t, newTransport(t, f), r)
		resp.Body.Close()
		wantStatus(t, resp, 200)
		// One second less: dates are cut to seconds.
		wantGap(t, f, 7*time.Second, 16*time.Second)
	}
}

func retryAfterBeyondCap(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 429, header: retryAfter("3600"), body: "later"}, {status: 200}}}
	r, _ := newRequest(t, http.MethodGet, "")
	start := time.Now()
	resp := do(t, newTransport(t, f), r)
	wantStatus(t, resp, 429)
	if d := time.Since(start); d > time.Second {
		t.Errorf("it took %v to give up", d)
	}
	if got := finish(t, resp); got != "later" {
		t.Errorf("body %q", got)
	}
	f.wantSent(t, 1)
}

// retryAfterOverflows: what is too large to represent is the longest wait (RFC 9111
// section 1.2.2), and so beyond every cap.
func retryAfterOverflows(t *testing.T, newTransport Make) {
	for _, v := range []string{"9223372036854775807", "9223372036", "9223372037", "18446744073709551616", "99999999999999999999999999"} {
		f := &fake{steps: []step{{status: 429, header: retryAfter(v)}, {status: 200}}}
		r, _ := newRequest(t, http.MethodGet, "")
		resp := do(t, newTransport(t, f), r)
		resp.Body.Close()
		if resp.StatusCode != 429 || len(f.sent()) != 1 {
			t.Errorf("Retry-After %s: %d after %d attempts, want the 429 of the first", v, resp.StatusCode, len(f.sent()))
		}
	}
}

func retryAfterGarbage(t *testing.T, newTransport Make) {
	for _, v := range []string{"", "soon", "-1", "-9223372036854775808", "1.5e400", "0x10", "Mon, 99 Foo 2020", "NaN", "\x00"} {
		f := &fake{steps: []step{{status: 429, header: retryAfter(v)}, {status: 200}}}
		r, _ := newRequest(t, http.MethodGet, "")
		resp := do(t, newTransport(t, f), r)
		resp.Body.Close()
		wantStatus(t, resp, 200) // by ordinary backoff
		if calls := f.sent(); len(calls) == 2 {
			if d := calls[1].at.Sub(calls[0].at); d > MaxWait {
				t.Errorf("Retry-After %q: tried again after %v", v, d)
			}
		}
	}
}

func noWaitBeyondDeadline(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 429, header: retryAfter("5"), body: "later"}, {status: 200}}}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	r, _ := newRequest(t, http.MethodGet, "")
	start := time.Now()
	resp := do(t, newTransport(t, f), r.WithContext(ctx))
	wantStatus(t, resp, 429)
	if d := time.Since(start); d > time.Second {
		t.Errorf("it took %v to give up", d)
	}
	if got := finish(t, resp); got != "later" {
		t.Errorf("body %q", got)
	}
	f.wantSent(t, 1)
}

func cancelEndsWait(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 429, header: retryAfter("9")}}}
	ctx, cancel := context.WithCancel(t.Context())
	r, b := newRequest(t, http.MethodPut, "hello")
	start := time.Now()
	time.AfterFunc(2*time.Second, cancel)
	err := fails(t, newTransport(t, f), r.WithContext(ctx))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if d := time.Since(start); d != 2*time.Second {
		t.Errorf("it ended after %v, want 2s", d)
	}
	f.wantSent(t, 1)
	f.wantClosed(t)
	b.wantClosed(t)
}

func cancelDuringSend(t *testing.T, newTransport Make) {
	cause := errors.New("the user left")
	f := &fake{steps: []step{{hang: true}}}
	ctx, cancel := context.WithCancelCause(t.Context())
	r, _ := newRequest(t, http.MethodGet, "")
	time.AfterFunc(time.Second, func() { cancel(cause) })
	err := fails(t, newTransport(t, f), r.WithContext(ctx))
	if !errors.Is(err, context.Canceled) && !errors.Is(err, cause) {
		t.Errorf("error %v, want context.Canceled or its cause", err)
	}
	f.wantSent(t, 1)
}

func requestCancelEndsWait(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 429, header: retryAfter("9")}}}
	done := make(chan struct{})
	r, _ := newRequest(t, http.MethodGet, "")
	r.Cancel = done //nolint:staticcheck // that is the case
	start := time.Now()
	time.AfterFunc(2*time.Second, func() { close(done) })
	err := fails(t, newTransport(t, f), r)
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if d := time.Since(start); d != 2*time.Second {
		t.Errorf("it ended after %v, want 2s", d)
	}
	f.wantSent(t, 1)
	f.wantClosed(t)
}

func clientTimeoutHolds(t *testing.T, newTransport Make) {
	// A wait that does not fit.
	f := &fake{steps: []step{{status: 429, header: retryAfter("9")}}}
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
