package roundtrippertest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// network is one whose connections are pipes, so that servers and clients on it
// live in a synctest bubble.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	dials  atomic.Int64
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

func (n *network) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.conns <- server:
		n.dials.Add(1)
		return client, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// serve runs a server with the handler for the length of the test, and returns
// a real transport that reaches it under every name.
func serve(t *testing.T, h http.Handler) (*http.Transport, *network) {
	t.Helper()
	n := &network{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: h}
	var wg sync.WaitGroup
	wg.Go(func() { srv.Serve(n) })
	tr := &http.Transport{DialContext: n.dial}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		srv.Close()
		wg.Wait()
	})
	return tr, n
}

func connectionsReused(t *testing.T, newTransport Make) {
	text := strings.Repeat("x", 64<<10)
	var calls atomic.Int64
	tr, n := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1)%2 == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, text)
		}
	}))
	rt := newTransport(t, tr)
	for range 40 {
		r, _ := newRequest(t, http.MethodGet, "")
		resp := do(t, rt, r)
		wantStatus(t, resp, 200)
		finish(t, resp)
	}
	if got := calls.Load(); got != 80 {
		t.Errorf("%d requests, want 80", got)
	}
	if got := n.dials.Load(); got != 1 {
		t.Errorf("%d connections for 40 requests, each tried twice", got)
	}
}

func nothingLeft(t *testing.T, newTransport Make) {
	var calls atomic.Int64
	tr, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1)%10 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, strings.Repeat("x", 100<<10))
		}
	}))
	rt := newTransport(t, tr)
	call := func(n int) {
		for range n {
			r, _ := newRequest(t, http.MethodPut, "hello")
			finish(t, do(t, rt, r))
		}
		tr.CloseIdleConnections()
		synctest.Wait()
	}
	call(10)
	before := runtime.NumGoroutine()
	call(1000)
	// Others of the process may have come: a leak of one in a hundred calls is more.
	if after := runtime.NumGoroutine(); after > before+5 {
		t.Errorf("%d goroutines before, %d after 1000 calls", before, after)
	}
}

func trailersKept(t *testing.T, newTransport Make) {
	var got []string
	tr, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		got = append(got, r.Trailer.Get("X-Sum"))
		w.Header().Set("Trailer", "X-Result")
		if len(got) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "body")
		w.Header().Set("X-Result", "fine")
	}))
	r, _ := newRequest(t, http.MethodPut, "")
	// The sum is known when the body has been read, and each body has its own.
	r.Trailer = http.Header{"X-Sum": nil}
	r.ContentLength = -1
	made := 0
	r.GetBody = func() (io.ReadCloser, error) {
		made++
		sum := strconv.Itoa(made)
		return io.NopCloser(io.MultiReader(strings.NewReader("hello"), atEOF(func() { r.Trailer.Set("X-Sum", sum) }))), nil
	}
	r.Body, _ = r.GetBody()
	resp := do(t, newTransport(t, tr), r)
	wantStatus(t, resp, 200)
	finish(t, resp)
	if len(got) != 2 || got[0] != "1" || got[1] != "2" {
		t.Errorf("the server got the trailers %q, want 1 and 2", got)
	}
	if v := resp.Trailer.Get("X-Result"); v != "fine" {
		t.Errorf("the response's trailer is %q", v)
	}
}

// atEOF is an empty reader that calls a function.
type atEOF func()

func (f atEOF) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

func closeIdlePassesThrough(t *testing.T, newTransport Make) {
	closed := false
	rt := newTransport(t, closer{roundTripperFunc(nil), &closed})
	(&http.Client{Transport: rt}).CloseIdleConnections()
	if !closed {
		t.Error("CloseIdleConnections did not reach the base")
	}
}

type closer struct {
	http.RoundTripper
	closed *bool
}

func (c closer) CloseIdleConnections() { *c.closed = true }

func switchingIsWritable(t *testing.T, newTransport Make) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.CopyN(conn, rw, 5)
	}))
	defer srv.Close()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	r, _ := newRequest(t, http.MethodGet, "")
	r.URL, _ = url.Parse(srv.URL)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp := do(t, newTransport(t, tr), r)
	wantStatus(t, resp, http.StatusSwitchingProtocols)
	rw, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("the body is a %T, which can't be written to", resp.Body)
	}
	defer rw.Close()
	if _, err := io.WriteString(rw, "hello"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(rw, b); err != nil || string(b) != "hello" {
		t.Errorf("read %q and %v", b, err)
	}
}

func streamsArrive(t *testing.T, newTransport Make) {
	next := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			io.WriteString(w, "tick")
			http.NewResponseController(w).Flush()
			<-next
		}
	}))
	defer srv.Close()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	r, _ := newRequest(t, http.MethodGet, "")
	r.URL, _ = url.Parse(srv.URL)
	resp := do(t, newTransport(t, tr), r)
	defer resp.Body.Close()
	b := make([]byte, 4)
	for range 3 {
		// The server sends the next one only after this one was read.
		if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "tick" {
			t.Fatalf("read %q and %v", b, err)
		}
		next <- struct{}{}
	}
}

func http2(t *testing.T, newTransport Make) {
	var calls atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.ProtoMajor != 2 || string(b) != "hello" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, strings.Repeat("x", 32<<10))
			return
		}
		io.WriteString(w, "world")
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	base := srv.Client().Transport
	r, b := newRequest(t, http.MethodPut, "hello")
	r.URL.Scheme, r.URL.Host = "https", strings.TrimPrefix(srv.URL, "https://")
	resp := do(t, newTransport(t, base), r)
	wantStatus(t, resp, 200)
	if resp.ProtoMajor != 2 {
		t.Errorf("protocol %s", resp.Proto)
	}
	if got := finish(t, resp); got != "world" {
		t.Errorf("body %q", got)
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
	base.(*http.Transport).CloseIdleConnections()
	b.willBeClosed(t)
}

func tlsVerifiedOnce(t *testing.T, newTransport Make) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	var conns atomic.Int64
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Config.ErrorLog = quiet()
	srv.StartTLS()
	defer srv.Close()
	tr := &http.Transport{} // which does not know the server's authority
	defer tr.CloseIdleConnections()
	r, _ := newRequest(t, http.MethodGet, "")
	r.URL, _ = url.Parse(srv.URL)
	fails(t, newTransport(t, tr), r)
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
