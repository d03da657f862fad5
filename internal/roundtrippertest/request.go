package roundtrippertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
)

func unsentBodyClosed(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 200}}}
	rt := newTransport(t, f)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, b := newRequest(t, http.MethodPut, "hello")
	err := fails(t, rt, r.WithContext(ctx))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	b.wantClosed(t)
	f.wantSent(t, 0)

	r, b = newRequest(t, http.MethodPut, "hello")
	r.URL = nil
	if resp, err := rt.RoundTrip(r); err == nil {
		resp.Body.Close()
	}
	b.wantClosed(t)
}

func getBodyFromSecondAttempt(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 200}}}
	r, b := newRequest(t, http.MethodPut, "hello")
	do(t, newTransport(t, f), r).Body.Close()
	if b.made != 0 {
		t.Errorf("GetBody was called %d times for one attempt", b.made)
	}

	f = &fake{steps: []step{{status: 503}, {status: 503}, {status: 200}}}
	r, b = newRequest(t, http.MethodPut, "hello")
	resp := do(t, newTransport(t, f), r)
	wantStatus(t, resp, 200)
	resp.Body.Close()
	if b.made != 2 {
		t.Errorf("GetBody was called %d times for three attempts, want 2", b.made)
	}
	f.wantSent(t, 3)
	for i, s := range f.sent() {
		if s.body != "hello" {
			t.Errorf("attempt %d was sent with the body %q", i+1, s.body)
		}
	}
	b.wantClosed(t)
}

func pipeSentOnce(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 503, body: "busy"}, {status: 200}}}
	rt := newTransport(t, f)
	pr, pw := io.Pipe()
	go func() {
		io.WriteString(pw, "piped")
		pw.Close()
	}()
	r, _ := newRequest(t, http.MethodPut, "")
	r.Body, r.ContentLength = pr, -1
	resp := do(t, rt, r)
	wantStatus(t, resp, 503)
	if got := finish(t, resp); got != "busy" {
		t.Errorf("body %q", got)
	}
	f.wantSent(t, 1)
	if got := f.sent()[0].body; got != "piped" {
		t.Errorf("sent %q", got)
	}
	synctest.Wait()
	if _, err := pw.Write([]byte("x")); err == nil {
		t.Error("the pipe was not closed")
	}
}

func replayFails(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 503, body: "busy"}, {status: 200}}}
	r, b := newRequest(t, http.MethodPut, "hello")
	r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
	resp, err := newTransport(t, f).RoundTrip(r)
	if err == nil {
		wantStatus(t, resp, 503)
		if got := finish(t, resp); got != "busy" {
			t.Errorf("body %q", got)
		}
	}
	f.wantSent(t, 1)
	f.wantClosed(t)
	b.wantClosed(t)
}
