package retry_test

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// TestDialects reads the examples of testdata/dialects: some lines on why and from where,
// verdict and wait, an empty line, and the response.
func TestDialects(t *testing.T) {
	files, err := filepath.Glob("testdata/dialects/*.txt")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
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
		resp.Body.Close()
		a := retry.ParseAnswer(resp.StatusCode, resp.Header, now, retry.ResetGuess)
		wait := "none"
		if a.Asked {
			wait = a.Wait.String() + " from " + a.Source
		}
		if got := "verdict: " + a.Verdict.String() + "\nwait: " + wait; !strings.HasSuffix(wants, got) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got, wants)
		}
	}
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
