package httpclient_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/retry"
)

// backend is a real server that reads what it gets and answers 200, by HTTP/1.1
// or HTTP/2.
func backend(t *testing.T, proto int) (s *httptest.Server, served *atomic.Int64) {
	t.Helper()
	served = new(atomic.Int64)
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		if r.ProtoMajor != proto {
			t.Errorf("HTTP/%d, want %d", r.ProtoMajor, proto)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusInternalServerError) // as many frameworks do
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if proto == 2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, served
}

// proxied is a ReverseProxy before the server, that takes uploads of up to 1 KiB
// and sends through rt.
func proxied(t *testing.T, target string, rt http.RoundTripper) *httptest.Server {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: rt,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(u) },
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1<<10)
		proxy.ServeHTTP(w, r)
	}))
	front.Config.ErrorLog = proxy.ErrorLog
	t.Cleanup(front.Close)
	return front
}

// speak sends text on a connection of its own and waits for whatever comes.
func speak(t *testing.T, addr net.Addr, text string) {
	t.Helper()
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
		resp.Body.Close()
	}
}

// TestFailingUploadsAreNotEvidence: what is wrong with the bodies that some send
// through a reverse proxy does not keep others from the server behind it.
func TestFailingUploadsAreNotEvidence(t *testing.T) {
	big := strings.Repeat("x", 64<<10)
	for name, upload := range map[string]func(t *testing.T, front *httptest.Server){
		"too large": func(t *testing.T, front *httptest.Server) {
			resp, err := front.Client().Post(front.URL, "text/plain", strings.NewReader(big))
			if err == nil { // it may be cut off before the answer
				resp.Body.Close()
			}
		},
		"too large, chunked": func(t *testing.T, front *httptest.Server) {
			resp, err := front.Client().Post(front.URL, "text/plain", io.MultiReader(strings.NewReader(big)))
			if err == nil {
				resp.Body.Close()
			}
		},
		"malformed chunks": func(t *testing.T, front *httptest.Server) {
			speak(t, front.Listener.Addr(), "PUT / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n")
		},
		"cut short": func(t *testing.T, front *httptest.Server) {
			c, err := net.Dial("tcp", front.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, "PUT / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\nabc")
			c.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, c)
		},
	} {
		for _, proto := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, HTTP/%d", name, proto), func(t *testing.T) {
				s, _ := backend(t, proto)
				front := proxied(t, s.URL, newTransport(t, s.Client().Transport))
				for range 25 {
					upload(t, front)
				}
				resp, err := front.Client().Get(front.URL)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("an innocent request: %s", resp.Status)
				}
			})
		}
	}
}

// TestBodyErrorsAreFinal: a body that fails, or is not as long as it says, would
// fail again, and says nothing about the host.
func TestBodyErrorsAreFinal(t *testing.T) {
	for name, c := range map[string]struct {
		declared int64
		body     func() io.Reader
	}{
		"read error": {-1, func() io.Reader { return io.MultiReader(strings.NewReader("abc"), failingReader{}) }},
		"too short":  {10, func() io.Reader { return strings.NewReader("abc") }},
		"too long":   {2, func() io.Reader { return strings.NewReader("abc") }},
	} {
		for _, proto := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, HTTP/%d", name, proto), func(t *testing.T) {
				s, served := backend(t, proto)
				var attempts int
				rt := newTransport(t, s.Client().Transport, httpclient.WithHooks(httpclient.Hooks{
					Attempt: func(context.Context, httpclient.AttemptInfo) { attempts++ },
				}), httpclient.WithClassifier(func(_ *http.Response, err error) retry.Verdict {
					if err != nil {
						t.Errorf("asked about %v", err)
					}
					return retry.Default
				}))
				for range 25 {
					r := get(t, s.URL)
					r.Method, r.ContentLength = http.MethodPut, c.declared
					r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(c.body()), nil }
					r.Body, _ = r.GetBody()
					if resp, err := rt.RoundTrip(r); err == nil {
						resp.Body.Close()
						if resp.Request != r {
							t.Error("the response is of another request")
						}
					}
				}
				if n := served.Load(); attempts != 25 || n > 25 {
					t.Errorf("%d attempts, %d of them came, want 25", attempts, n)
				}
				respondsWith(t, rt, get(t, s.URL), 200)
			})
		}
	}
}

// TestLengthWithoutBody: net/http does not send it, and would not the next time.
func TestLengthWithoutBody(t *testing.T) {
	s, served := backend(t, 1)
	attempts := 0
	rt := newTransport(t, s.Client().Transport, strict(1), httpclient.WithHooks(httpclient.Hooks{
		Attempt: func(context.Context, httpclient.AttemptInfo) { attempts++ },
	}))
	r := get(t, s.URL)
	r.ContentLength = 10
	if resp, err := rt.RoundTrip(r); err == nil {
		resp.Body.Close()
		t.Error("it was sent")
	}
	if attempts != 1 || served.Load() != 0 {
		t.Errorf("%d attempts, %d of them came", attempts, served.Load())
	}
	respondsWith(t, rt, get(t, s.URL), 200)
}

// TestLengthWithoutBodyOfAnyError: the same when the error is one of the connection, as net/http returns
// it when it notices first that it has closed that itself.
func TestLengthWithoutBodyOfAnyError(t *testing.T) {
	sent := 0
	rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		sent++
		return nil, io.EOF
	}), strict(1))
	for n := range 5 {
		r := get(t, "http://api.test")
		r.ContentLength = int64(1 + n)
		if resp, err := rt.RoundTrip(r); err == nil {
			resp.Body.Close()
			t.Error("it was sent")
		}
	}
	if sent != 5 {
		t.Errorf("%d requests reached the transport below, want 5: none is retried, and none counts against the host", sent)
	}
}

// TestUnreadBodies: a host that answers before it asks for the body, by
// Expect: 100-continue, is judged by its answer.
func TestUnreadBodies(t *testing.T) {
	for code, wantSent := range map[int]int64{401: 10, 503: 2} {
		var served atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			w.WriteHeader(code)
		}))
		tr := s.Client().Transport.(*http.Transport).Clone()
		tr.ExpectContinueTimeout = time.Minute
		rt := newTransport(t, tr, strict(2), httpclient.WithAttempts(1))
		for range 10 {
			r := get(t, s.URL)
			r.Method, r.Body = http.MethodPut, io.NopCloser(failingReader{})
			r.Header.Set("Expect", "100-continue")
			if resp, err := rt.RoundTrip(r); err == nil {
				resp.Body.Close()
			} else if errors.Is(err, errDisk) {
				t.Error("the body was read")
			}
		}
		if n := served.Load(); n != wantSent {
			t.Errorf("%d: %d requests came, want %d", code, n, wantSent)
		}
		tr.CloseIdleConnections()
		s.Close()
	}
}

// TestBodyErrorAgainstResponse: the server may answer before the error of the
// body comes out, and the transport may wrap it.
func TestBodyErrorAgainstResponse(t *testing.T) {
	for name, end := range map[string]func(*http.Request, error) (*http.Response, error){
		"wrapped":  func(_ *http.Request, err error) (*http.Response, error) { return nil, fmt.Errorf("send: %w", err) },
		"replaced": func(*http.Request, error) (*http.Response, error) { return nil, errors.New("broken pipe") },
		"500":      func(r *http.Request, _ error) (*http.Response, error) { return respond(r, status(500)), nil },
		"timeout":  func(*http.Request, error) (*http.Response, error) { return nil, context.DeadlineExceeded },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
					attempts++
					if r.Body == nil {
						return respond(r, status(200)), nil
					}
					_, err := io.ReadAll(r.Body)
					r.Body.Close()
					return end(r, err)
				}))
				for range 25 {
					r := get(t, api)
					r.Method = http.MethodPut
					r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(failingReader{}), nil }
					r.Body, _ = r.GetBody()
					if resp, err := rt.RoundTrip(r); err == nil {
						resp.Body.Close()
					}
				}
				if attempts != 25 {
					t.Errorf("%d attempts, want 25", attempts)
				}
				respondsWith(t, rt, get(t, api), 200)
			})
		})
	}
}

// TestReadErrorAfterCloseIsNotTheSenders: a transport that gives an attempt up closes its
// body, whose next Read fails for that.
func TestReadErrorAfterCloseIsNotTheSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			attempts++
			r.Body.Close()
			r.Body.Read(make([]byte, 1))
			return nil, errors.New("connection reset")
		}))
		r := get(t, api)
		r.Method = http.MethodPut
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(failingReader{}), nil }
		r.Body, _ = r.GetBody()
		if _, err := rt.RoundTrip(r); err == nil || attempts != 3 {
			t.Errorf("%v after %d attempts, want 3", err, attempts)
		}
	})
}

// TestSlowUploadsAreNotEvidence: a timeout that comes while the transport waits
// for the caller's body is not the host's.
func TestSlowUploadsAreNotEvidence(t *testing.T) {
	for _, proto := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", proto), func(t *testing.T) {
			s, _ := backend(t, proto)
			var w *io.PipeWriter
			rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
				// On HTTP/1.1 net/http returns only when the body's Read has.
				if w := w; w != nil {
					defer context.AfterFunc(r.Context(), func() { w.Close() })()
				}
				return s.Client().Transport.RoundTrip(r)
			}), httpclient.WithAttemptTimeout(20*time.Millisecond))
			for range 25 {
				r := get(t, s.URL)
				r.Method = http.MethodPut
				r.Body, w = io.Pipe()
				if _, err := rt.RoundTrip(r); err == nil {
					t.Fatal("no timeout")
				}
			}
			w = nil
			resp, err := rt.RoundTrip(get(t, s.URL))
			if e, ours := errors.AsType[*httpclient.Error](err); ours {
				t.Fatal(e)
			} else if err == nil {
				resp.Body.Close()
			}
		})
	}
}

// TestTimeoutAfterTheUploadIsEvidence: a host that has the whole body and does not answer is slow.
func TestTimeoutAfterTheUploadIsEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			return nil, os.ErrDeadlineExceeded
		}), strict(3), httpclient.WithAttempts(1))
		for i := range 4 {
			r := get(t, api)
			r.Method, r.ContentLength, r.Body = http.MethodPut, 3, io.NopCloser(io.MultiReader(strings.NewReader("abc")))
			_, err := rt.RoundTrip(r)
			if e, ours := errors.AsType[*httpclient.Error](err); ours != (i == 3) || ours && e.Reason != retry.HostFailing {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

// TestBodiesOfInnerRetries: net/http sends a request again by itself when an idle
// connection turns out to be closed. The body that it gets for that may fail too.
func TestBodiesOfInnerRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		rt := newTransport(t, roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			attempts++
			r.Body.Close()
			b, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			defer b.Close()
			_, err = io.ReadAll(b)
			return nil, fmt.Errorf("send: %w", err)
		}), strict(1))
		for _, made := range []error{nil, errDisk, errDisk} {
			attempts = 0
			r := get(t, api)
			r.Method = http.MethodPut
			r.Body = io.NopCloser(strings.NewReader("abc"))
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(failingReader{}), made }
			if _, err := rt.RoundTrip(r); !errors.Is(err, errDisk) || attempts != 1 {
				t.Errorf("%v after %d attempts, want 1", err, attempts)
			}
		}
	})
}

// TestUnsendableRequestsAreNotEvidence: what net/http refuses to write says nothing about the
// host, and would be refused again. Clients of a reverse proxy choose the headers.
func TestUnsendableRequestsAreNotEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		proto  int
		change func(*http.Request)
	}{
		"Upgrade, HTTP/2": {2, func(r *http.Request) {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "foo")
		}},
		"Transfer-Encoding, HTTP/2": {2, func(r *http.Request) { r.Header.Set("Transfer-Encoding", "foo") }},
		"long header, HTTP/2":       {2, func(r *http.Request) { r.Header.Set("X-Long", strings.Repeat("x", 2<<20)) }},
		"trailer, HTTP/2":           {2, func(r *http.Request) { r.Trailer = http.Header{"Content-Length": nil} }},
		"trailer, HTTP/1": {1, func(r *http.Request) {
			r.Body, r.Trailer = io.NopCloser(io.MultiReader(strings.NewReader("x"))), http.Header{"Content-Length": nil}
		}},
		"URL, HTTP/1": {1, func(r *http.Request) { r.URL.Opaque = "/\n" }},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := backend(t, c.proto)
			attempts := 0
			rt := newTransport(t, s.Client().Transport, strict(1), httpclient.WithHooks(httpclient.Hooks{
				Attempt: func(context.Context, httpclient.AttemptInfo) { attempts++ },
			}))
			respondsWith(t, rt, get(t, s.URL), 200) // the limits of the server are known
			attempts = 0
			for range 5 {
				r := get(t, s.URL)
				c.change(r)
				if resp, err := rt.RoundTrip(r); err == nil {
					resp.Body.Close()
					t.Error("it was sent")
				}
			}
			if attempts != 5 {
				t.Errorf("%d attempts, want 5", attempts)
			}
			respondsWith(t, rt, get(t, s.URL), 200)
		})
	}
}

// TestConnectionClosedByThisSideIsNotEvidence: once in some thousand times net/http says that, instead of why it refuses
// to write a request.
func TestConnectionClosedByThisSideIsNotEvidence(t *testing.T) {
	attempts := 0
	rt := newTransport(t, roundTripperFunc(func(*http.Request) (*http.Response, error) {
		attempts++
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed}
	}), strict(1))
	for range 5 {
		if _, err := rt.RoundTrip(get(t, "http://a.example/")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("error %v, want that of the connection", err)
		}
	}
	if attempts != 5 {
		t.Errorf("%d attempts, want 5", attempts)
	}
}

// TestAnswersToStalledUploadsAreNotEvidence: a server that gives a body up that does not come
// answers as if the fault were its own.
func TestAnswersToStalledUploadsAreNotEvidence(t *testing.T) {
	for _, code := range []int{500, 503} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Not the server's ReadTimeout, which may be over before the headers are read: then there is no answer.
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadAll(r.Body); err != nil {
				http.Error(w, err.Error(), code) // as many handlers do
			}
		}))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.Start()
		rt := newTransport(t, s.Client().Transport, strict(1), httpclient.WithAttempts(1))
		for range 3 {
			body, w := io.Pipe()
			r := get(t, s.URL)
			r.Method, r.Body = http.MethodPost, body
			respondsWith(t, rt, r, code)
			w.Close()
		}
		respondsWith(t, rt, get(t, s.URL), 200)
		s.Close()
	}
}
