package roundtrippertest

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

func lastResponseWhole(t *testing.T, newTransport Make) {
	steps := make([]step, 20)
	for i := range steps {
		steps[i] = step{status: 503, header: map[string]string{"X-Try": strconv.Itoa(i + 1)}, body: "try " + strconv.Itoa(i+1)}
	}
	f := &fake{steps: steps}
	r, _ := newRequest(t, http.MethodGet, "")
	resp := do(t, newTransport(t, f), r)
	n := strconv.Itoa(len(f.sent()))
	if got := resp.Header.Get("X-Try"); got != n {
		t.Errorf("it is the response of attempt %s of %s", got, n)
	}
	if got := finish(t, resp); got != "try "+n {
		t.Errorf("body %q, want %q", got, "try "+n)
	}
	f.wantClosed(t)
}

func droppedResponsesClosed(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{
		{status: 503, body: "short"},
		{status: 503, body: strings.Repeat("x", 1<<20)},
		{status: 200},
	}}
	r, _ := newRequest(t, http.MethodGet, "")
	resp := do(t, newTransport(t, f), r)
	wantStatus(t, resp, 200)
	if f.open != 1 {
		t.Errorf("%d bodies are open while the last response is read", f.open)
	}
	resp.Body.Close()
	f.wantClosed(t)

	// A body that never ends must not hold the retry up for long.
	pr, pw := io.Pipe()
	defer pw.Close()
	f = &fake{steps: []step{{status: 503, stream: pr, header: map[string]string{"Retry-After": "1"}}, {status: 200}}}
	start := time.Now()
	resp = do(t, newTransport(t, f), r)
	resp.Body.Close()
	wantStatus(t, resp, 200)
	if d := time.Since(start); d > MaxWait {
		t.Errorf("it took %v", d)
	}
	f.wantClosed(t)
}

func successNotDelayed(t *testing.T, newTransport Make) {
	pr, pw := io.Pipe()
	f := &fake{steps: []step{{status: 200, stream: pr, header: map[string]string{"Retry-After": "60"}}}}
	r, _ := newRequest(t, http.MethodGet, "")
	start := time.Now()
	resp := do(t, newTransport(t, f), r) // while the stream has not begun
	if d := time.Since(start); d > 0 {
		t.Errorf("the response came after %v", d)
	}
	go func() {
		time.Sleep(time.Hour)
		io.WriteString(pw, "late")
		pw.Close()
	}()
	if got := finish(t, resp); got != "late" {
		t.Errorf("body %q", got)
	}
	f.wantSent(t, 1)
}

// cutReader fails after a part of its body.
type cutReader struct{ r io.Reader }

var errCut = errors.New("connection reset by peer")

func (c cutReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err == io.EOF {
		err = errCut
	}
	return n, err
}

func cutBodyNotRetried(t *testing.T, newTransport Make) {
	f := &fake{steps: []step{{status: 200, stream: io.NopCloser(cutReader{strings.NewReader("half")})}}}
	r, _ := newRequest(t, http.MethodGet, "")
	resp := do(t, newTransport(t, f), r)
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(b) != "half" || !errors.Is(err, errCut) {
		t.Errorf("read %q and %v", b, err)
	}
	f.wantSent(t, 1)

	// In a response that will be retried it does not matter.
	f = &fake{steps: []step{{status: 503, stream: io.NopCloser(cutReader{strings.NewReader("half")})}, {status: 200}}}
	resp = do(t, newTransport(t, f), r)
	resp.Body.Close()
	wantStatus(t, resp, 200)
	f.wantClosed(t)
}
