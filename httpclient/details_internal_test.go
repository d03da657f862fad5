package httpclient

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// TestSaidAgain: an answer that is not sent has the status of a rejection, and its reset in the form of what was said.
func TestSaidAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := &http.Request{URL: &url.URL{}}
		for status, want := range map[int]int{200: 429, 399: 429, 400: 400, 403: 403, 503: 503} {
			resp := saidBy(retry.Rejected, &http.Response{StatusCode: status}).again(req, &Error{Reason: retry.CoolingDown})
			if resp.StatusCode != want || resp.Header.Get("Retry-After") != "1" || resp.ProtoMajor != 1 || resp.ProtoMinor != 1 {
				t.Errorf("%d: %+v", status, resp)
			}
		}
		at := strconv.FormatInt(time.Now().Add(7*time.Second).Unix(), 10)
		for said, want := range map[string]string{"999999999": "7", "1000000000": at, "2000000000": at, "soon": "7"} {
			s := saidBy(retry.Rejected, &http.Response{StatusCode: 429, Header: http.Header{"X-Ratelimit-Reset": {said}}})
			if got := s.again(req, &Error{Wait: 7 * time.Second}).Header.Get("X-Ratelimit-Reset"); got != want {
				t.Errorf("%s: %s, want %s", said, got, want)
			}
		}
	})
}

// TestValidUntil: a query's signature has a validity of whole seconds above 0, in decimal digits.
func TestValidUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := time.Now().UTC().Format("20060102T150405Z")
		for expires, want := range map[string]time.Duration{
			"1": time.Second, "60": time.Minute, "2147483647": 2147483647 * time.Second,
			"": 0, "0": 0, "-5": 0, "abc": 0, "1a": 0, "2147483648": 0,
		} {
			u := &url.URL{RawQuery: "X-Amz-Signature=x&X-Amz-Date=" + made + "&X-Amz-Expires=" + expires}
			got := validUntil(&http.Request{URL: u, Header: http.Header{}})
			if want == 0 && !got.IsZero() || want > 0 && time.Until(got) != want {
				t.Errorf("%q: %v", expires, got)
			}
		}
	})
}

// TestSignatureIsAsOldAsItSays: unless that is more than it may be.
func TestSignatureIsAsOldAsItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for age, want := range map[time.Duration]time.Duration{0: time.Minute, 10 * time.Second: 50 * time.Second, 59 * time.Second: time.Second, time.Minute: time.Minute, time.Hour: time.Minute, -time.Hour: time.Minute} {
			made := time.Now().UTC().Add(-age).Format("20060102T150405Z")
			if got := time.Until(amzUntil(made, time.Minute)); got != want {
				t.Errorf("%v old: valid for %v, want %v", age, got, want)
			}
		}
	})
}

// TestKeysThatComeAgain: as many as there is room for are known, for two minutes.
func TestKeysThatComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeated()
		before := func(key string) bool { return r.before(http.Header{"Idempotency-Key": {key}}) }
		for i := range maxRepeated {
			if before(strconv.Itoa(i)) {
				t.Fatalf("%d is new", i)
			}
		}
		time.Sleep(repeatedFor - 1)
		for i := range maxRepeated {
			if !before(strconv.Itoa(i)) {
				t.Fatalf("%d was sent before", i)
			}
		}
		time.Sleep(repeatedFor)
		if before("0") {
			t.Error("it was sent two minutes ago")
		}
		before("new") // takes the place of the oldest
		if before("0") || !before("new") || len(r.at) != maxRepeated {
			t.Errorf("%d are known", len(r.at))
		}
	})
}

// TestPeek: a body is read where it may end within the bound, and only there.
func TestPeek(t *testing.T) {
	const max = 5
	for name, c := range map[string]struct {
		body     string
		length   int64
		encoding string
		read     bool
		whole    bool
	}{
		"as long as may be":      {"12345", 5, "", true, true},
		"of unknown length":      {"12345", -1, "", true, true},
		"longer than was known":  {"123456", -1, "", true, false},
		"too long":               {"123456", 6, "", false, false},
		"compressed":             {"12345", 5, "gzip", false, false},
		"compressed and unknown": {"123", -1, "gzip", false, false},
	} {
		body := io.NopCloser(strings.NewReader(c.body))
		resp := &http.Response{Body: body, ContentLength: c.length, Header: http.Header{}}
		if c.encoding != "" {
			resp.Header.Set("Content-Encoding", c.encoding)
		}
		data, whole := peek(resp, max)
		if whole != c.whole || whole && string(data) != c.body || (resp.Body != body) != c.read {
			t.Errorf("%s: %q, whole %v", name, data, whole)
		}
		if all, err := io.ReadAll(resp.Body); err != nil || string(all) != c.body {
			t.Errorf("%s: the caller reads %q, %v", name, all, err)
		}
	}
	cut := &http.Response{ContentLength: -1, Header: http.Header{}, Body: io.NopCloser(io.MultiReader(strings.NewReader("123"), failing{io.ErrUnexpectedEOF}))}
	if data, whole := peek(cut, max); whole {
		t.Errorf("%q is not whole", data)
	}
	if all, err := io.ReadAll(cut.Body); string(all) != "123" || err != io.ErrUnexpectedEOF {
		t.Errorf("the caller reads %q, %v", all, err)
	}
	if n, err := cut.Body.Read(make([]byte, 1)); n != 0 || err != io.ErrUnexpectedEOF {
		t.Errorf("then %d, %v", n, err)
	}
	if _, whole := peek(&http.Response{Body: http.NoBody, Header: http.Header{}}, max); whole {
		t.Error("there is no body")
	}
	synctest.Test(t, func(t *testing.T) {
		body := &slow{part: strings.NewReader("123"), closed: make(chan struct{})}
		resp, start := &http.Response{Body: body, ContentLength: -1, Header: http.Header{}}, time.Now()
		if _, whole := peek(resp, max); whole || time.Since(start) != peekTime || peekTime != 500*time.Millisecond {
			t.Errorf("whole %v after %v", whole, time.Since(start))
		}
		resp.Body.Close()
	})
}

// TestParkBelievesNoLength: what a response says of its length is no reason to make so much memory ready.
func TestParkBelievesNoLength(t *testing.T) {
	resp := &http.Response{Body: io.NopCloser(strings.NewReader("123")), ContentLength: math.MaxInt64 / 2}
	park(resp)
	if all, err := io.ReadAll(resp.Body); err != nil || string(all) != "123" {
		t.Errorf("%q, %v", all, err)
	}
}

// TestBuffered: what can be sent again anyway, or is known to be too long, is not read; and of the others no
// more than shows whether they are too long.
func TestBuffered(t *testing.T) {
	const max = 5
	for name, c := range map[string]struct {
		length int64
		again  bool
		read   int
	}{
		"can be sent again": {10, true, 0},
		"also if short":     {3, true, 0},
		"is too long":       {max + 1, false, 0},
		"is as it says":     {max, false, max + 1},
		"may be too long":   {-1, false, max + 1},
	} {
		body := &onceBody{Reader: strings.NewReader("0123456789")}
		req := &http.Request{Body: body, ContentLength: c.length}
		if c.again {
			req.GetBody = func() (io.ReadCloser, error) { return body, nil }
		}
		got, err := buffered(req, max)
		if err != nil || (got == req) != (c.read == 0) || body.read != c.read {
			t.Errorf("%s: %v, read %d", name, err, body.read)
		}
	}
}

// TestInMemory: a body is known to be in memory if net/http made it so, of the length that was declared.
func TestInMemory(t *testing.T) {
	for name, body := range map[string]io.Reader{"bytes": bytes.NewReader([]byte("123")), "string": strings.NewReader("123"), "buffer": bytes.NewBufferString("123")} {
		req, err := http.NewRequest("POST", "http://x", body)
		if err != nil {
			t.Fatal(err)
		}
		if !inMemory(req) {
			t.Errorf("%s: is in memory", name)
		}
		if req.ContentLength = 2; inMemory(req) {
			t.Errorf("%s: has another length", name)
		}
	}
	for name, body := range map[string]io.Reader{"bytes": (*bytes.Reader)(nil), "string": (*strings.Reader)(nil), "buffer": (*bytes.Buffer)(nil), "other": io.LimitReader(strings.NewReader("123"), 3)} {
		if inMemory(&http.Request{Body: io.NopCloser(body), ContentLength: 3}) {
			t.Errorf("nil or another, %s: is not in memory", name)
		}
	}
	if inMemory(&http.Request{Body: &slow{}}) {
		t.Error("a body of the user's is not in memory")
	}
}
