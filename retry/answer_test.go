package retry_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// TestDialects reads the examples of testdata/dialects: some lines on why and from where, the
// path of the request and the provider if they matter, verdict, wait and scope, an empty
// line, and the response. What needs a provider is not understood without. Of each family, which
// the name of a file begins with, there is something to retry and something not to, and its
// sources are on the page about providers.
func TestDialects(t *testing.T) {
	files, err := filepath.Glob("testdata/dialects/*.txt")
	if err != nil || len(files) < 79 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	providers := map[string]retry.Provider{"": 0, "github": retry.GitHub, "shopify": retry.Shopify, "graphql": retry.GraphQL}
	all := []retry.Provider{retry.GitHub, retry.Shopify, retry.GraphQL}
	page, err := os.ReadFile("../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	type ways struct{ again, never bool }
	families := map[string]ways{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		wants, response, _ := strings.Cut(string(data), "\n\n")
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(response)), nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		p, known := providers[line(wants, "provider: ")]
		if !known {
			t.Fatalf("%s: the provider %q", file, line(wants, "provider: "))
		}
		family, _, _ := strings.Cut(filepath.Base(file), "_")
		f, final := families[family], line(wants, "verdict: ") == "final"
		families[family] = ways{f.again || !final, f.never || final}
		if source, _, _ := strings.Cut(line(wants, "# https://"), " "); source == "" || !strings.Contains(string(page), "(https://"+source) {
			t.Errorf("%s: its source %q is not on the page", file, source)
		}
		path := line(wants, "path: ")
		said := func(providers ...retry.Provider) string {
			a := retry.ParseAnswer(resp.StatusCode, resp.Header, now, retry.ResetGuess)
			if retry.WantsBody(resp.StatusCode, resp.Header, path, providers...) {
				a = retry.ParseBody(a, resp.StatusCode, resp.Header, path, body, providers...)
			}
			if names := retry.ParseScopes(resp.Header); a.Scope != "" && !slices.Contains(names, a.Scope) {
				t.Errorf("%s: the scope %q is not one of %q", file, a.Scope, names)
			}
			s := "verdict: " + a.Verdict.String() + "\nwait: none"
			if a.Asked {
				s = "verdict: " + a.Verdict.String() + "\nwait: " + a.Wait.String() + " from " + a.Source
			}
			if a.Scope != "" {
				s += "\nscope: " + a.Scope
			}
			return s
		}
		// The other providers do no harm.
		if got := said(all...); !strings.HasSuffix(wants, got) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got, wants)
		}
		if got := said(p); !strings.HasSuffix(wants, got) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got, wants)
		}
		if p != 0 && strings.HasSuffix(wants, said()) {
			t.Errorf("%s: it does not need the provider", file)
		}
	}
	for name, f := range families {
		if !f.again || !f.never {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// line returns the rest of the line that begins with prefix.
func line(text, prefix string) string {
	for l := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(l, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// FuzzAnswer: whatever a server says, the answer is one of three, a success is final, and a
// server that says no retry is obeyed.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{"", "true", "false", " False ", "1500", "-1", "99999999999999999999", "maybe"} {
		f.Add(429, s, s, s)
		f.Add(529, "true", s, "7")
	}
	f.Add(200, "true", "true", "1")
	f.Fuzz(func(t *testing.T, status int, stripe, stainless, aws string) {
		h := http.Header{"Stripe-Should-Retry": {stripe}, "X-Should-Retry": {stainless}, "X-Amz-Retry-After": {aws}}
		a := retry.ParseAnswer(status, h, now, retry.ResetGuess)
		forbidden := strings.EqualFold(strings.Trim(stripe, " \t\r\n"), "false") || strings.EqualFold(strings.Trim(stainless, " \t\r\n"), "false")
		switch {
		case a.Verdict < retry.Final || a.Verdict > retry.Rejected, a.Wait < 0, !a.Asked && a.Hint != retry.Hint{}:
			t.Errorf("%+v", a)
		case (status < 400 || forbidden) && a.Verdict != retry.Final:
			t.Errorf("%d %q: %v", status, h, a.Verdict)
		case status == 429 && !forbidden && a.Verdict != retry.Rejected:
			t.Errorf("%q: %v", h, a.Verdict)
		}
		if again := retry.ParseAnswer(status, h, now.Add(time.Hour), retry.ResetGuess); again != a {
			t.Errorf("%+v, then %+v", a, again)
		}
	})
}

// TestQuotaOfARejection: a 429 is about the quota that it says, also where that is not used up; other statuses are not.
func TestQuotaOfARejection(t *testing.T) {
	h := header("X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "10")
	for status, want := range map[int]bool{200: false, 403: false, 428: false, 429: true, 430: false, 503: false} {
		if a := retry.ParseAnswer(status, h, now, retry.ResetGuess); a.Asked != want || want != (a.Hint.Wait == 10*time.Second) {
			t.Errorf("%d: %+v", status, a)
		}
	}
}

// TestWaitBesideAQuota: the wait of a rejection is about its request, also where a quota is used up for longer;
// what is no rejection may say when to repeat it, and the longer one counts.
func TestWaitBesideAQuota(t *testing.T) {
	const again, reset = "Retry-After", "X-Ratelimit-Reset"
	for _, c := range []struct {
		status     int
		after      string
		left, want string
	}{
		{429, "5", "0", again}, {403, "5", "0", again}, {503, "5", "0", again},
		{429, "90", "0", again}, {403, "90", "0", again}, {503, "90", "0", again},
		{500, "5", "0", reset}, {500, "60", "0", again}, {500, "90", "0", again},
		{404, "5", "0", reset}, {430, "5", "0", reset}, {504, "5", "0", reset},
		{500, "5", "3", again}, {500, "90", "3", again},
		{200, "5", "0", reset}, {200, "90", "0", reset},
	} {
		a := retry.ParseAnswer(c.status, header(again, c.after, "X-RateLimit-Remaining", c.left, "X-RateLimit-Reset", "60"), now, retry.ResetGuess)
		if !a.Asked || a.Source != c.want {
			t.Errorf("%+v: %+v", c, a)
		}
	}
}
