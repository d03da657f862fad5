package httpclient

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// FuzzRequest: whatever a request says of itself, a signature that is valid ends later than now
// and no later than it may, and requests that differ in their ids have the same route.
func FuzzRequest(f *testing.F) {
	f.Add("attempt=1; max=3", "20260701T120000Z", "X-Amz-Signature=0&X-Amz-Date=20260701T120000Z&X-Amz-Expires=60", "12/messages/34")
	f.Add("attempt=2; max=1", "2026", "X-Amz-Signature=0&X-Amz-Expires=-1", "12/token/messages/@original")
	f.Add(";max=;", "", "%zz&X-Amz-Signature=", "1/reactions/2/@me")
	f.Fuzz(func(t *testing.T, attempt, date, query, path string) {
		req := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{
			"Amz-Sdk-Request": {attempt}, "X-Amz-Date": {date},
		}}
		if o := repeatedAbove(req.Header); o != 0 && o != outerAll {
			t.Errorf("%q: %d", attempt, o)
		}
		for _, signed := range []bool{false, true} {
			most := time.Duration(1<<31) * time.Second
			if signed {
				req.Header.Set("Authorization", "AWS4-HMAC-SHA256 x")
				most = amzValid
			}
			before := time.Now()
			if until := validUntil(req); !until.IsZero() && (!until.After(before) || time.Until(until) > most) {
				t.Errorf("%q %q: valid until %v", date, query, until)
			}
		}
		parts := strings.Split(path, "/")
		for i, p := range parts {
			if isID(p) {
				parts[i] = "7"
			}
		}
		for _, of := range []string{"/channels/", "/api/v10/webhooks/", "/users/"} {
			if a, b := routeOf("discord", "GET", of+path), routeOf("discord", "GET", of+strings.Join(parts, "/")); a != b {
				t.Errorf("%q and %q", a, b)
			}
		}
		if key := scopeKey("k", "discord/b", req); !strings.HasPrefix(key, "k#discord/b") {
			t.Error(key)
		}
	})
}

// FuzzSaid: a response in place of a server's is an error with a wait of whole seconds, whatever
// the server has said.
func FuzzSaid(f *testing.F) {
	f.Add(429, "1767225600", int64(time.Minute))
	f.Add(200, "30", int64(1))
	f.Add(503, "NaN", int64(0))
	f.Add(403, "1e400", int64(1<<62))
	f.Fuzz(func(t *testing.T, status int, reset string, wait int64) {
		req := &http.Request{Method: http.MethodGet, URL: new(url.URL)}
		s := saidBy(retry.Rejected, &http.Response{StatusCode: status, Header: http.Header{"X-Ratelimit-Reset": {reset}}})
		resp := s.again(req, &Error{Reason: retry.CoolingDown, Wait: time.Duration(max(0, wait))})
		after, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64)
		if resp.StatusCode < 400 || err != nil || after < 1 {
			t.Errorf("%d after %q, %v", resp.StatusCode, resp.Header.Get("Retry-After"), err)
		}
		if n, err := strconv.ParseInt(resp.Header.Get("X-Ratelimit-Reset"), 10, 64); err != nil || n < after {
			t.Errorf("reset %d after %d, %v", n, after, err)
		}
	})
}
