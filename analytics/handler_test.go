package analytics_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/limiter"
)

func ask(h http.Handler, method, query string) *http.Response {
	r := httptest.NewRequest(method, "/debug/limits", nil)
	r.URL.RawQuery = query
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t testing.TB, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(b)
}

// several returns handlers of one and of several.
func several(t testing.TB, top *analytics.Top) map[string]http.Handler {
	t.Helper()
	h, err := analytics.Handler(map[string]*analytics.Top{"api": top, "small": newTop(t, 2)})
	must(t, err)
	return map[string]http.Handler{"one": top, "several": h}
}

// TestHandlerRejects: what is asked wrongly, by the field, in a problem.
func TestHandlerRejects(t *testing.T) {
	for name, h := range several(t, newTop(t, 20)) {
		for _, c := range []struct {
			method, query string
			status        int
			detail        string
		}{
			{"GET", "n=0", 400, `n is "0": must be a whole number from 1 to 20`},
			{"GET", "n=21", 400, `n is "21": must be a whole number from 1 to 20`},
			{"GET", "n=-1", 400, `n is "-1"`},
			{"GET", "n=", 400, `n is ""`},
			{"GET", "n", 400, `n is ""`},
			{"GET", "n=ten", 400, `n is "ten"`},
			{"GET", "n=1.5", 400, `n is "1.5"`},
			{"GET", "n=0x5", 400, `n is "0x5"`},
			{"GET", "n=99999999999999999999", 400, `n is "99999999999999999999"`},
			{"GET", "n=1&n=2", 400, "n is given 2 times"},
			{"GET", "n=%zz", 400, `query is "n=%zz"`},
			{"GET", "n=1;n=2", 400, "query is"},
			{"GET", "n=%3Cscript%3E%22%00%ff", 400, `n is "<script>\"\x00\xff"`},
			{"GET", "n=" + strings.Repeat("1", 100), 400, `n is "` + strings.Repeat("1", 32) + `"...`},
			{"GET", "n=" + strings.Repeat("1", 2000), 400, "query is 2002 bytes: must be at most 1024"},
			{"GET", "n=" + strings.Repeat("1", 32), 400, `n is "` + strings.Repeat("1", 32) + `": `},
			{"GET", "n=" + strings.Repeat("1", 33), 400, `n is "` + strings.Repeat("1", 32) + `"...: `},
			{"GET", "n=" + strings.Repeat("1", 1022), 400, `"...: must be a whole number`},
			{"GET", "n=" + strings.Repeat("1", 1023), 400, "query is 1025 bytes: must be at most 1024"},
			{"HEAD", "n=0", 400, ""},
			{"POST", "", 405, `method is "POST": must be GET or HEAD`},
			{"DELETE", "n=1", 405, "method is"},
			{"OPTIONS", "", 405, "method is"},
		} {
			resp := ask(h, c.method, c.query)
			var problem struct {
				Type, Title, Detail string
				Status              int
			}
			text := body(t, resp)
			if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != "application/problem+json" || resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %s ?%s: %d %v", name, c.method, c.query, resp.StatusCode, resp.Header)
			}
			if allow := resp.Header.Get("Allow"); (allow == "GET, HEAD") != (c.status == 405) {
				t.Errorf("%s: %s: Allow is %q", name, c.method, allow)
			}
			if c.method == "HEAD" {
				if text != "" {
					t.Errorf("%s: HEAD has a body: %s", name, text)
				}
				continue
			}
			if err := json.Unmarshal([]byte(text), &problem); err != nil || problem.Status != c.status || problem.Title != http.StatusText(c.status) || !strings.Contains(problem.Detail, c.detail) {
				t.Errorf("%s: %s ?%s: %v %s", name, c.method, c.query, err, text)
			}
			if strings.Contains(text, "<") {
				t.Errorf("%s: ?%s: %s", name, c.query, text)
			}
		}
	}
}

// TestHandlerAnswers: the report, with the names of the fields that others rely on.
func TestHandlerAnswers(t *testing.T) {
	top := newTop(t, 20)
	for i := range 15 {
		for range i + 1 {
			tell(top, fmt.Sprint("k", i), 2, false)
		}
	}
	r := top.Report(2)
	stamp := func(i int) string { return r.Keys[i].LastDenied.Format("2006-01-02T15:04:05.999999999Z07:00") }
	since := r.Since.Format("2006-01-02T15:04:05.999999999Z07:00")
	want := fmt.Sprintf(`{"since":%q,"denied":120,"keys":[`+
		`{"key":"k14","denied":15,"error":0,"denied_units":30,"allowed":0,"last_denied":%q},`+
		`{"key":"k13","denied":14,"error":0,"denied_units":28,"allowed":0,"last_denied":%q}]}`, since, stamp(0), stamp(1))
	if got := body(t, ask(top, "GET", "n=2&other=x")); strings.TrimSpace(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for query, keys := range map[string]int{"": 10, "n=1": 1, "n=20": 15, "n=+7": 7, "n=%37": 7} {
		query = strings.ReplaceAll(query, "+", "%2B")
		resp := ask(top, "GET", query)
		var got analytics.Report
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != 200 || len(got.Keys) != keys {
			t.Errorf("?%s: %d, %v, %d keys", query, resp.StatusCode, err, len(got.Keys))
		}
		if resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("?%s: %v", query, resp.Header)
		}
	}
	get, head := ask(top, "GET", ""), ask(top, "HEAD", "")
	if head.StatusCode != 200 || head.ContentLength != int64(len(body(t, get))) || body(t, head) != "" {
		t.Errorf("HEAD: %d, %v", head.StatusCode, head.Header)
	}
	if got := body(t, ask(newTop(t, 3), "GET", "")); !strings.Contains(got, `"denied":0,"keys":[]}`) {
		t.Errorf("nothing was denied: %s", got)
	}
}

// TestHandlerOfSeveral: by name, each within its own capacity.
func TestHandlerOfSeveral(t *testing.T) {
	tops := map[string]*analytics.Top{"b": newTop(t, 1), "a": newTop(t, 30), "<c>": newTop(t, 5)}
	for _, top := range tops {
		for i := range 40 {
			tell(top, fmt.Sprint(i), 1, false)
		}
	}
	h, err := analytics.Handler(tops)
	must(t, err)
	delete(tops, "a") // is no concern of the handler
	for query, counts := range map[string][3]int{"": {5, 10, 1}, "n=3": {3, 3, 1}, "n=30": {5, 30, 1}} {
		var got struct {
			Limiters []struct {
				Name string
				analytics.Report
			}
		}
		must(t, json.Unmarshal([]byte(body(t, ask(h, "GET", query))), &got))
		if len(got.Limiters) != 3 {
			t.Fatalf("%+v", got)
		}
		for i, name := range []string{"<c>", "a", "b"} {
			if l := got.Limiters[i]; l.Name != name || len(l.Keys) != counts[i] || l.Denied != 40 || l.Since.IsZero() {
				t.Errorf("?%s: %d: %+v, want %d keys", query, i, l, counts[i])
			}
		}
	}
	for want, tops := range map[string]map[string]*analytics.Top{
		"tops is 0":  {},
		`name is ""`: {"": newTop(t, 1)},
		`top is nil or the zero value for "x": must be made by New`: {"x": nil},
		`the zero value for "z"`:                                    {"z": new(analytics.Top)},
	} {
		if h, err := analytics.Handler(tops); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.HasPrefix(err.Error(), "analytics: ") || !strings.Contains(err.Error(), want) || h != nil {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestHostileKeys: whatever a key holds, the answer is JSON, and text that no browser
// takes for HTML.
func TestHostileKeys(t *testing.T) {
	for _, key := range []string{
		`","denied":999,"x":"`, `</script><script>alert(1)</script>`, "\x00\x01\x1f\x7f", "\xff\xfe\xc3(", "\u2028\u2029",
		`\`, `"`, "a\r\nb", "\xed\xa0\x80", strings.Repeat("<", 128), strings.Repeat("\xff", 200), "😀", "&lt;",
	} {
		top := newTop(t, 5)
		tell(top, key, 1, false)
		text := body(t, ask(top, "GET", ""))
		var got analytics.Report
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil || len(got.Keys) != 1 || got.Keys[0].Denied != 1 || !utf8.ValidString(text) || strings.ContainsAny(text, "<>&\x00\u2028") {
			t.Errorf("%q: %v %q", key, err, text)
		}
		if k := got.Keys[0].Key; len(key) > 128 {
			if !strings.HasPrefix(k, "sha256:") || len(k) != 71 {
				t.Errorf("%q: %q", key, k)
			}
		} else if k != strings.ToValidUTF8(key, "\ufffd") && utf8.ValidString(key) {
			t.Errorf("%q came out as %q", key, k)
		}
	}
}

// FuzzQuery: a number from 1 to the capacity is answered, everything else refused.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{"", "n=1", "n=20", "n=21", "n=1&n=2", "n=%zz", "n=+5", "x=1", "n=00007", "n=1;"} {
		f.Add(q)
	}
	top := newTop(f, 20)
	for i := range 25 {
		deny(top, fmt.Sprint(i))
	}
	f.Fuzz(func(t *testing.T, query string) {
		resp := ask(top, "GET", query)
		text := body(t, resp)
		if !json.Valid([]byte(text)) {
			t.Fatalf("?%s: %s", query, text)
		}
		values, err := url.ParseQuery(query)
		n := 10
		if given, ok := values["n"]; ok && len(given) == 1 {
			// A sign and zeros in front are no harm.
			if _, scan := fmt.Sscanf(given[0]+"\n", "%d\n", &n); scan != nil {
				n = 0
			}
		} else if ok {
			n = 0
		}
		good := err == nil && len(query) <= 1024 && n >= 1 && n <= 20
		switch {
		case resp.StatusCode == 200:
			var r analytics.Report
			if err := json.Unmarshal([]byte(text), &r); err != nil || !good || len(r.Keys) != n {
				t.Fatalf("?%q: %v, %d keys", query, err, len(r.Keys))
			}
		case resp.StatusCode != 400 || resp.Header.Get("Content-Type") != "application/problem+json":
			t.Fatalf("?%q: %d %s", query, resp.StatusCode, text)
		}
	})
}
