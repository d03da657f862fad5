package httpclient_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/httpclient"
)

// stream is a body that can be read once.
type stream struct {
	io.Reader
	closes int
}

func (s *stream) Close() error { s.closes++; return nil }

func TestBodyBuffer(t *testing.T) {
	for _, c := range []struct {
		size, declared int64
		attempts       int
	}{
		{size: 100, declared: 100, attempts: 3},
		{size: 100, declared: -1, attempts: 3},
		{size: 0, declared: 0, attempts: 3},
		{size: 1000, declared: 1000, attempts: 3},
		{size: 1001, declared: 1001, attempts: 1},
		{size: 1001, declared: -1, attempts: 1},
		{size: 100_000, declared: -1, attempts: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			var lengths []int64
			base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
				b, _ := io.ReadAll(r.Body)
				r.Body.Close()
				got, lengths = append(got, string(b)), append(lengths, r.ContentLength)
				return respond(r, status(429)), nil
			})
			text := strings.Repeat("x", int(c.size))
			body := &stream{Reader: strings.NewReader(text)}
			r := get(t, api)
			r.Method, r.Body, r.ContentLength = http.MethodPost, body, c.declared
			respondsWith(t, newTransport(t, base, httpclient.WithBodyBuffer(1000)), r, 429)
			if len(got) != c.attempts || body.closes != 1 {
				t.Fatalf("%+v: %d attempts, closed %d times", c, len(got), body.closes)
			}
			for i := range got {
				if got[i] != text || lengths[i] != c.declared {
					t.Errorf("%+v: attempt %d sent %d bytes, ContentLength %d", c, i+1, len(got[i]), lengths[i])
				}
			}
			if r.Body != body || r.GetBody != nil {
				t.Errorf("%+v: the request was changed", c)
			}
		})
	}
}

type failingReader struct{}

var errDisk = errors.New("disk on fire")

func (failingReader) Read([]byte) (int, error) { return 0, errDisk }

func TestBodyBufferThatFails(t *testing.T) {
	s := scripted(status(200))
	body := &stream{Reader: failingReader{}}
	r := get(t, api)
	r.Body = body
	if _, err := newTransport(t, s, httpclient.WithBodyBuffer(10)).RoundTrip(r); !errors.Is(err, errDisk) {
		t.Errorf("error %v", err)
	}
	if body.closes != 1 {
		t.Errorf("closed %d times", body.closes)
	}
	s.wantSent(t, 0)
}

// TestResponseRequestIsTheCallers: not a clone of ours.
func TestResponseRequestIsTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := get(t, api)
		resp := respondsWith(t, newTransport(t, scripted(status(503), status(200))), r, 200)
		if resp.Request != r {
			t.Error("it is another request")
		}
		resp = respondsWith(t, newTransport(t, scripted(status(503))), r, 503)
		if resp.Request.URL != r.URL || resp.Request.Context().Value(http.ServerContextKey) != nil {
			t.Error("it has another URL")
		}
	})
}

// TestOriginalBodyIsClosedWithTheAttempt: the first attempt's, by the base; the
// others' by it too, all of them once.
func TestBodiesAreClosedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies []*stream
		made := func() (io.ReadCloser, error) {
			b := &stream{Reader: bytes.NewReader([]byte("hello"))}
			bodies = append(bodies, b)
			return b, nil
		}
		r := get(t, api)
		r.Method, r.GetBody = http.MethodPut, made
		r.Body, _ = made()
		respondsWith(t, newTransport(t, scripted(status(503))), r, 503)
		if len(bodies) != 3 {
			t.Errorf("%d bodies for 3 attempts", len(bodies))
		}
		for i, b := range bodies {
			if b.closes != 1 {
				t.Errorf("body %d was closed %d times", i+1, b.closes)
			}
		}
	})
}
