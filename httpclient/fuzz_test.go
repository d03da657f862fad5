package httpclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// chaos is a base whose behaviour is read from a string of bytes.
type chaos struct {
	data   []byte
	text   string // of headers
	bodies []*chaosBody
	sent   int
}

func (c *chaos) next() int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b)
}

var (
	chaosStatus  = []int{200, 429, 503, 500, 502, 504, 408, 101, 204, 302, 403, 404, 501, 599, 999, 0}
	chaosHeaders = []string{"Retry-After", "Retry-After-Ms", "RateLimit", "X-Ratelimit-Reset", "X-Ratelimit-Remaining", "Ratelimit-Reset", "Ratelimit-Remaining", "Date", "Age", "Content-Type", "X-Ratelimit-Resource", "X-Ratelimit-Bucket", "X-Shopid"}
	chaosValues  = []string{
		"0", "1", "5", "119", "121", "-1", "9223372036854775807", "soon", "6m0s", "1e300", "",
		"Sat, 01 Jan 2000 00:00:03 GMT", "Sat, 01 Jan 3000 00:00:00 GMT", `"q";r=0;t=9`, "946684805", "946684805000", "application/json",
	}
)

func (c *chaos) RoundTrip(r *http.Request) (*http.Response, error) {
	c.sent++
	if r.Body != nil {
		io.CopyN(io.Discard, r.Body, int64(c.next()))
		r.Body.Close()
	}
	time.Sleep(time.Duration(c.next()) * time.Millisecond)
	switch c.next() % 8 {
	case 0:
		return nil, errors.New("reset")
	case 1:
		if c.next()%4 == 0 {
			<-r.Context().Done()
		}
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
	case 2:
		if c.next()%4 == 0 {
			return nil, nil
		}
	}
	p := reply{status: chaosStatus[c.next()%len(chaosStatus)], header: make(http.Header)}
	for range c.next() % 4 {
		value := c.text
		if n := c.next(); n < 200 {
			value = chaosValues[n%len(chaosValues)]
		}
		p.header.Add(chaosHeaders[c.next()%len(chaosHeaders)], value)
	}
	resp := respond(r, p)
	b := &chaosBody{left: c.next() << (c.next() % 10), cut: c.next()%3 == 0, hang: c.next()%5 == 0, closed: make(chan struct{})}
	c.bodies = append(c.bodies, b)
	resp.Body, resp.ContentLength = b, int64(c.next())-1
	return resp, nil
}

// chaosBody is a body that may be long, cut, or never end.
type chaosBody struct {
	left      int
	cut, hang bool
	closes    int
	closed    chan struct{}
}

func (b *chaosBody) Read(p []byte) (int, error) {
	switch n := min(len(p), b.left); {
	case n > 0:
		b.left -= n
		return n, nil
	case b.hang:
		<-b.closed
		return 0, errors.New("read on closed body")
	case b.cut:
		return 0, io.ErrUnexpectedEOF
	default:
		return 0, io.EOF
	}
}

func (b *chaosBody) Close() error {
	if b.closes++; b.closes == 1 {
		close(b.closed)
	}
	return nil
}

// FuzzTransport sends requests to servers that do anything: each ends, within
// the ceiling of waits, in either a response or an error, and every body is
// closed exactly once.
func FuzzTransport(f *testing.F) {
	f.Add([]byte{}, "3", byte(0))
	f.Add([]byte{0, 0, 3, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 3, 2}, "3", byte(1))
	f.Add([]byte(strings.Repeat("\x03\x01\x03\x01\x02\x05\x00\x09\x02\x01", 40)), "9223372036854775807", byte(0xff))
	f.Add([]byte(strings.Repeat("\x00\x05\x07\x02\x01\xff\x00\xff\x09\x02\x05", 40)), `"a";r=0;t=77`, byte(0x5a))
	f.Add([]byte(strings.Repeat("\x00\x05\x07\x00\x02\x10\x09\x00\x0c\x05\x01\x01\x00\x09", 40)), "search", byte(0x80))
	f.Fuzz(func(t *testing.T, data []byte, text string, mode byte) {
		synctest.Test(t, func(t *testing.T) { fuzzOnce(t, data, text, mode) })
	})
}

func fuzzOnce(t *testing.T, data []byte, text string, mode byte) {
	const each, total = 20 * time.Second, 50 * time.Second
	c := &chaos{data: data, text: text}
	var waited time.Duration
	opts := []httpclient.Option{
		httpclient.WithAttempts(5), httpclient.WithMaxWait(each), httpclient.WithMaxTotalWait(total),
		httpclient.WithHooks(httpclient.Hooks{Wait: func(_ context.Context, w httpclient.WaitInfo) {
			if w.For > each {
				t.Errorf("a wait of %v", w.For)
			}
			waited += w.For
		}}),
	}
	if mode&1 != 0 {
		opts = append(opts, httpclient.WithLimiter(newLocal(t, limiter.TokenBucket(limiter.PerSecond(1), 2))))
	}
	if mode&2 != 0 {
		opts = append(opts, httpclient.WithAttemptTimeout(100*time.Millisecond))
	}
	if mode&4 != 0 {
		opts = append(opts, httpclient.WithAdaptive())
	}
	if mode&8 != 0 {
		opts = append(opts, httpclient.WithBodyBuffer(100))
	}
	if mode&128 != 0 {
		opts = append(opts, httpclient.WithProvider(retry.Shopify, retry.GraphQL))
	}
	rt := newTransport(t, c, opts...)
	for range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		if mode&16 != 0 {
			ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
		}
		hung := time.AfterFunc(time.Hour, cancel)
		body := &stream{Reader: strings.NewReader(text)}
		r := get(t, api).WithContext(ctx)
		r.Body, r.ContentLength = body, -1
		if mode&32 != 0 {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
		}
		if mode&64 != 0 {
			r.Method = http.MethodPost
		}
		waited, c.sent, c.bodies = 0, 0, nil
		resp, err := rt.RoundTrip(r)
		hung.Stop()
		switch {
		case (resp == nil) == (err == nil):
			t.Errorf("a response %v and an error %v", resp != nil, err)
		case err == nil:
			if resp.StatusCode == http.StatusSwitchingProtocols {
				if _, ok := resp.Body.(*chaosBody); !ok {
					t.Errorf("the body of a 101 became a %T", resp.Body)
				}
			}
			httpclient.GaveUp(resp)
			httpclient.Wait(resp)
			resp.Body.Close()
		}
		cancel()
		if waited > total {
			t.Errorf("waited %v in all", waited)
		}
		if c.sent > 5 {
			t.Errorf("%d attempts", c.sent)
		}
		if body.closes != 1 {
			t.Errorf("the request's body was closed %d times", body.closes)
		}
		for i, b := range c.bodies {
			if b.closes != 1 {
				t.Errorf("body %d of %d was closed %d times", i+1, len(c.bodies), b.closes)
			}
		}
	}
}
