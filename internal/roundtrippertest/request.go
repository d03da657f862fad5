package roundtrippertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
)

// image is all of a request that a wrapper might be tempted to change.
func image(r *http.Request) map[string]any {
	return map[string]any{
		"Method": r.Method, "URL": r.URL.String(), "Header": r.Header.Clone(), "Body": r.Body,
		"ContentLength": r.ContentLength, "Host": r.Host, "Close": r.Close, "RequestURI": r.RequestURI,
		"TransferEncoding": append([]string(nil), r.TransferEncoding...), "Trailer": r.Trailer.Clone(),
		"Context": r.Context(), "GetBody": reflect.ValueOf(r.GetBody).Pointer(),
	}
}

func requestNotModified(t *testing.T, newTransport Make) {
	for _, steps := range [][]step{
		{{status: 200}},
		{{status: 503}, {status: 429}, {status: 200}},
		{{status: 503}},
	} {
		f := &fake{steps: steps}
		rt := newTransport(t, f)
		r, _ := newRequest(t, http.MethodPut, "hello")
		r.Header["X-Odd-case"] = []string{"1", "2"}
		before := image(r)
		do(t, rt, r).Body.Close()
		for k, v := range image(r) {
			if !reflect.DeepEqual(v, before[k]) {
				t.Errorf("%s was changed from %v to %v", k, before[k], v)
			}
		}
		for i, s := range f.sent() {
			if !reflect.DeepEqual(s.header["X-Odd-case"], []string{"1", "2"}) {
				t.Errorf("attempt %d was sent with the headers %v", i+1, s.header)
			}
		}
	}
}

func sentBodyClosed(t *testing.T, newTransport Make) {
	for _, steps := range [][]step{
		{{status: 200}},
		{{status: 503}, {status: 503}, {status: 200}},
		{{status: 503}},
		{{err: errRefused}},
	} {
		rt := newTransport(t, &fake{steps: steps})
		r, b := newRequest(t, http.MethodPut, "hello")
		if resp, err := rt.RoundTrip(r); err == nil {
			resp.Body.Close()
		}
		b.wantClosed(t)
	}
}

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

func noBodyReplayed(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 503}, {status: 200}}}
	r, _ := newRequest(t, http.MethodPut, "")
	r.Body = http.NoBody
	resp := do(t, newTransport(t, f), r)
	resp.Body.Close()
	wantStatus(t, resp, 200)
	f.wantSent(t, 2)
}

func contentLengthKept(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 503}, {status: 503}, {status: 200}}}
	text := strings.Repeat("x", 1000)
	r, _ := newRequest(t, http.MethodPut, text)
	do(t, newTransport(t, f), r).Body.Close()
	f.wantSent(t, 3)
	for i, s := range f.sent() {
		if s.length != 1000 || s.body != text {
			t.Errorf("attempt %d: ContentLength %d and %d bytes, want 1000", i+1, s.length, len(s.body))
		}
	}
}
