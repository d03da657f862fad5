package httpclient

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// notSent is the header of a response that no server has sent. Its value is the reason.
const notSent = "Holdfast-Not-Sent"

// said is what is kept of the response that made a key cool down, to answer requests that
// are not sent meanwhile.
type said struct {
	status int         // 0 unless the response was a rejection: what else is wrong with a request is its own
	header http.Header // those of quotas that hold as long as the cooldown
	epoch  bool        // X-RateLimit-Reset was a Unix time
}

// quotaHeaders tell clients such as go-github a rejection by quota from others.
var quotaHeaders = [...]string{
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Used", "X-Ratelimit-Resource",
	"X-Ratelimit-Bucket", "X-Ratelimit-Scope", "X-Ratelimit-Global", "X-Ratelimit-Reset",
}

// saidBy keeps what a response says.
func saidBy(kind retry.Verdict, resp *http.Response) *said {
	s := new(said)
	if kind == retry.Rejected {
		s.status = resp.StatusCode
	}
	for _, name := range quotaHeaders {
		if v := resp.Header[name]; len(v) > 0 {
			if s.header == nil {
				s.header = make(http.Header)
			}
			s.header[name] = v[:1:1]
		}
	}
	if n, err := strconv.ParseFloat(s.header.Get("X-Ratelimit-Reset"), 64); err == nil && n >= 1e9 {
		s.epoch = true
	}
	return s
}

// again returns a response like the one that was said, for a request that is not sent.
func (s *said) again(req *http.Request, e *Error) *http.Response {
	status := http.StatusTooManyRequests
	h := http.Header{}
	seconds := max(1, int64(math.Ceil(e.Wait.Seconds())))
	if s != nil {
		if s.status >= 400 {
			status = s.status
		}
		for name, v := range s.header {
			h[name] = v
		}
		if h["X-Ratelimit-Reset"] != nil {
			reset := seconds
			if s.epoch {
				reset = int64(math.Ceil(float64(time.Now().Add(e.Wait).UnixMilli()) / 1e3))
			}
			h.Set("X-Ratelimit-Reset", strconv.FormatInt(reset, 10))
		}
	}
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
	h.Set("Content-Type", "application/problem+json")
	h.Set(notSent, e.Reason.String())
	body := problem(status, seconds)
	return &http.Response{
		Status: strconv.Itoa(status) + " " + cmp.Or(http.StatusText(status), "Not Sent"), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		Request: req,
	}
}

// problem is a body of RFC 9457. message and error are where clients of many APIs look for
// what to tell. The key is not in it: it may be a credential's.
func problem(status int, seconds int64) []byte {
	text := "not sent: the server asked for a pause; retry in " + strconv.FormatInt(seconds, 10) + " s"
	type detail struct {
		Message string `json:"message"`
		Type    string `json:"type"`
	}
	body, _ := json.Marshal(struct { // of these types, it does not fail
		Type    string `json:"type"`
		Title   string `json:"title"`
		Status  int    `json:"status"`
		Detail  string `json:"detail"`
		Message string `json:"message"`
		Error   detail `json:"error"`
	}{"about:blank", http.StatusText(status), status, text, text, detail{text, "cooling_down"}})
	return body
}
