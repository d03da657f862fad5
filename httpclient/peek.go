package httpclient

import (
	"io"
	"net/http"
	"time"
)

// peekTime is how long a response is held back for its body to be read. The headers of a
// rejection rarely come alone.
const peekTime = 500 * time.Millisecond

// peek reads the body of a response if it ends within max bytes and peekTime, and reports
// whether it did. Read or not, the body stays whole for the caller. A Read that takes
// longer goes on in the background until it returns or the body is closed.
func peek(resp *http.Response, max int64) (data []byte, whole bool) {
	if resp.Body == http.NoBody || resp.ContentLength > max || resp.Header.Get("Content-Encoding") != "" {
		return nil, false
	}
	p := &peeked{body: resp.Body, done: make(chan struct{})}
	resp.Body = p
	go func() {
		defer close(p.done)
		p.head, p.err = io.ReadAll(io.LimitReader(p.body, max+1))
		p.whole = p.err == nil && int64(len(p.head)) <= max
	}()
	timer := time.NewTimer(peekTime)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.head, p.whole
	case <-timer.C:
		return nil, false
	}
}

// peeked is a body whose beginning is or will be in memory.
type peeked struct {
	body io.ReadCloser
	done chan struct{}

	// After done:
	head  []byte
	err   error // what the reading of head ended with
	whole bool  // head is all
	off   int   // how much of head was given away
}

func (p *peeked) Read(b []byte) (int, error) {
	<-p.done
	switch {
	case p.off < len(p.head):
		n := copy(b, p.head[p.off:])
		p.off += n
		return n, nil
	case p.err != nil:
		return 0, p.err
	case p.whole:
		return 0, io.EOF
	default:
		return p.body.Read(b)
	}
}

func (p *peeked) Close() error { return p.body.Close() }
