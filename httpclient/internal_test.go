package httpclient

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a body that sends a part and then nothing until it is closed.
type slow struct {
	part   io.Reader
	closed chan struct{}
	closes int
}

func (s *slow) Read(p []byte) (int, error) {
	if n, err := s.part.Read(p); err == nil {
		return n, nil
	}
	<-s.closed
	return 0, errors.New("read on closed body")
}

func (s *slow) Close() error {
	if s.closes++; s.closes == 1 {
		close(s.closed)
	}
	return nil
}

// lingers is one whose Close takes a second longer than its Read.
type lingers struct{ *slow }

func (l lingers) Close() error {
	defer time.Sleep(time.Second)
	return l.slow.Close()
}

// once is a body that counts how often it is closed.
type onceBody struct {
	io.Reader
	closes, read int
}

func (o *onceBody) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	o.read += n
	return n, err
}

func (o *onceBody) Close() error { o.closes++; return nil }

func TestPark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{0, 1, drainBytes - 1, drainBytes} {
			body := &onceBody{Reader: strings.NewReader(strings.Repeat("x", n))}
			resp := &http.Response{Body: body, ContentLength: int64(n)}
			park(resp)
			if body.closes != 1 || body.read != n {
				t.Errorf("%d bytes: read %d, closed %d times", n, body.read, body.closes)
			}
			if b, err := io.ReadAll(resp.Body); len(b) != n || err != nil {
				t.Errorf("%d bytes: then read %d and %v", n, len(b), err)
			}
			resp.Body.Close()
			if body.closes != 1 {
				t.Errorf("closed %d times", body.closes)
			}
		}

		text := strings.Repeat("0123456789", 100_000)
		body := &onceBody{Reader: strings.NewReader(text)}
		resp := &http.Response{Body: body, ContentLength: -1}
		park(resp)
		if body.closes != 0 || body.read != drainBytes+1 {
			t.Errorf("large: read %d, closed %d times", body.read, body.closes)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != text || err != nil {
			t.Errorf("large: then read %d and %v", len(b), err)
		}
		resp.Body.Close()
		if body.closes != 1 {
			t.Errorf("large: closed %d times", body.closes)
		}

		sl := &slow{part: strings.NewReader("part"), closed: make(chan struct{})}
		resp = &http.Response{Body: sl, ContentLength: -1}
		start := time.Now()
		park(resp)
		if d := time.Since(start); d != drainTime {
			t.Errorf("slow: took %v, want %v", d, drainTime)
		}
		b, err := io.ReadAll(resp.Body)
		if string(b) != "part" || !errors.Is(err, errCut) {
			t.Errorf("slow: then read %q and %v", b, err)
		}
		resp.Body.Close()
		if sl.closes != 1 {
			t.Errorf("slow: closed %d times", sl.closes)
		}

		resp = &http.Response{Body: lingers{&slow{part: strings.NewReader("part"), closed: make(chan struct{})}}, ContentLength: -1}
		start = time.Now()
		park(resp)
		if d := time.Since(start); d != drainTime+time.Second {
			t.Errorf("took %v: the body is still being closed", d)
		}

		resp = &http.Response{}
		park(resp)
		if resp.Body != http.NoBody {
			t.Error("no body")
		}
	})
}
