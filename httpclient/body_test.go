package httpclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		trailer        bool
		attempts       int
		length         int64 // that is sent
	}{
		{size: 100, declared: 100, attempts: 3, length: 100},
		{size: 100, declared: -1, attempts: 3, length: 100},
		{size: 100, declared: 0, attempts: 3, length: 100},
		{size: 100, declared: -1, trailer: true, attempts: 3, length: -1},
		{size: 2, declared: 1, attempts: 1, length: 1}, // not as long as it says
		{size: 0, declared: 0, attempts: 3, length: 0},
		{size: 0, declared: -1, attempts: 3, length: 0},
		{size: 1000, declared: 1000, attempts: 3, length: 1000},
		{size: 1000, declared: -1, attempts: 3, length: 1000},
		{size: 1001, declared: 1001, attempts: 1, length: 1001},
		{size: 1001, declared: -1, attempts: 1, length: -1},
		{size: 100_000, declared: -1, attempts: 1, length: -1},
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
			r.TransferEncoding = []string{"chunked"} // as a proxy gets it
			if c.trailer {
				r.Trailer = http.Header{"Checksum": nil}
			}
			respondsWith(t, newTransport(t, base, httpclient.WithBodyBuffer(1000)), r, 429)
			if len(got) != c.attempts || body.closes != 1 {
				t.Fatalf("%+v: %d attempts, closed %d times", c, len(got), body.closes)
			}
			for i := range got {
				if got[i] != text || lengths[i] != c.length {
					t.Errorf("%+v: attempt %d sent %d bytes, ContentLength %d", c, i+1, len(got[i]), lengths[i])
				}
			}
			if r.Body != body || r.GetBody != nil || r.ContentLength != c.declared || len(r.TransferEncoding) != 1 {
				t.Errorf("%+v: the request was changed", c)
			}
		})
	}
}

// TestBodyBufferWhereItIsOfUse: of one byte on, for a request that may be sent again.
func TestBodyBufferWhereItIsOfUse(t *testing.T) {
	for name, c := range map[string]struct {
		max      int64
		attempts int
		header   string
		length   int64 // that is sent
	}{
		"one byte":          {1, 2, "Accept", 1},
		"off":               {0, 2, "Accept", -1},
		"one attempt":       {1, 1, "Accept", -1},
		"the outer repeats": {1, 2, "X-Stainless-Retry-Count", -1},
		"but rejections":    {1, 2, "X-Stripe-Client-User-Agent", 1},
	} {
		var length int64
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			length = r.ContentLength
			r.Body.Close()
			return respond(r, status(200)), nil
		})
		r := get(t, api)
		r.Method, r.Body, r.ContentLength = http.MethodPost, &stream{Reader: strings.NewReader("x")}, -1
		r.Header.Set(c.header, "0")
		respondsWith(t, newTransport(t, base, httpclient.WithBodyBuffer(c.max), httpclient.WithAttempts(c.attempts)), r, 200)
		if length != c.length {
			t.Errorf("%s: ContentLength %d, want %d", name, length, c.length)
		}
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

// TestBodyBufferSendsNoChunks: a server that wants a length gets it.
func TestBodyBufferSendsNoChunks(t *testing.T) {
	for _, text := range []string{"", "hello"} {
		var length int64
		var encoding []string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			length, encoding = r.ContentLength, r.TransferEncoding
		}))
		front := proxied(t, s.URL, newTransport(t, s.Client().Transport, httpclient.WithBodyBuffer(1<<20)))
		resp, err := front.Client().Post(front.URL, "text/plain", io.MultiReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 || length != int64(len(text)) || len(encoding) != 0 {
			t.Errorf("%s, ContentLength %d, Transfer-Encoding %q, for %q", resp.Status, length, encoding, text)
		}
		s.Close()
	}
}

// TestBodyBufferEndsWithTheCaller: whatever way the caller gives up, and even if
// the body's Close waits for its Read.
func TestBodyBufferEndsWithTheCaller(t *testing.T) {
	for name, give := range map[string]func(*http.Request) (*http.Request, *http.Client){
		"context": func(r *http.Request) (*http.Request, *http.Client) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			t.Cleanup(cancel)
			return r.WithContext(ctx), new(http.Client)
		},
		"Client.Timeout": func(r *http.Request) (*http.Request, *http.Client) {
			return r, &http.Client{Timeout: time.Second}
		},
		"Cancel": func(r *http.Request) (*http.Request, *http.Client) {
			cancel := make(chan struct{})
			time.AfterFunc(time.Second, func() { close(cancel) })
			r.Cancel = cancel //nolint:staticcheck // it is what is tested
			return r, new(http.Client)
		},
	} {
		for _, stubborn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stubborn %v", name, stubborn), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { // which ends when all goroutines have
					s := scripted(status(200))
					body := &stuckBody{closed: make(chan struct{}), stubborn: stubborn}
					r := get(t, api)
					r.Method, r.Body = http.MethodPost, body
					r, client := give(r)
					client.Transport = newTransport(t, s, httpclient.WithBodyBuffer(1000))
					start := time.Now()
					_, err := client.Do(r)
					if name == "Cancel" && !errors.Is(err, context.Canceled) || name != "Cancel" && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("error %v", err)
					}
					between(t, "took", time.Since(start), time.Second, time.Second)
					s.wantSent(t, 0)
					synctest.Wait()
					if n := body.closes.Load(); n != 1 {
						t.Errorf("closed %d times", n)
					}
					time.Sleep(time.Hour)
				})
			})
		}
	}
}

// stuckBody is a body whose Read ends with Close; a stubborn one's only later, and
// its Close waits for that, as with the body of a server's request.
type stuckBody struct {
	closed   chan struct{}
	stubborn bool
	closes   atomic.Int64
}

func (b *stuckBody) Read([]byte) (int, error) {
	if b.stubborn {
		time.Sleep(time.Minute)
		return 0, io.EOF
	}
	<-b.closed
	return 0, errors.New("read on closed body")
}

func (b *stuckBody) Close() error {
	if b.closes.Add(1) == 1 && !b.stubborn {
		close(b.closed)
	} else if b.stubborn {
		time.Sleep(time.Minute)
	}
	return nil
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
