package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: said in vain\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: no redis\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"--- SKIP: TestC (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestD","Output":"    d_test.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestD"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
{"Action":"output","Package":"q","Test":"TestE","Output":"panic: over\n"}
{"Action":"fail","Package":"q"}
{"Action":"output","Package":"r","Output":"PASS\n"}
{"Action":"output","Package":"r","Output":"ok  \tr\t0.1s\n"}
{"Action":"pass","Package":"r"}
no event
`

func TestReport(t *testing.T) {
	may, err := parseSkips("# comment\n\np\\.TestC(/.*)? it may\n")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	r := newReport(&out, may)
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	const want = "    d_test.go:1: wrong\nFAIL\nFAIL\tp\t0.1s\npanic: over\nok  \tr\t0.1s\nno event\n"
	if out.String() != want {
		t.Errorf("it prints\n%s\nwant\n%s", &out, want)
	}
	if r.passed != 1 || r.failed != 2 || r.skipped != 2 {
		t.Errorf("%d passed, %d failed, %d skipped", r.passed, r.failed, r.skipped)
	}
	if got := strings.Join(r.skips, "\n"); got != "skipped: p.TestB: b_test.go:1: no redis" {
		t.Errorf("it complains of %q", got)
	}
}

func TestSkipsNeedReasons(t *testing.T) {
	for _, text := range []string{"p.TestC\n", "p.TestC  \n", "p.( why\n"} {
		if _, err := parseSkips(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// TestRun runs go test on modules that pass, skip, fail, and do not compile.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("links a program per case")
	}
	for _, tt := range []struct {
		name, body string
		strict     bool
		want       int
		tally      string
	}{
		{"passes", "func TestX(t *testing.T) {}", true, 0, "1 0 0\n"},
		{"skips", `func TestX(t *testing.T) { t.Skip("why") }`, false, 0, "0 0 1\n"},
		{"skips where it may not", `func TestX(t *testing.T) { t.Skip("why") }`, true, 1, "0 0 1\n"},
		{"skips where it may", `func TestListed(t *testing.T) { t.Skip("why") }`, true, 0, "0 0 1\n"},
		{"fails", `func TestX(t *testing.T) { t.Error("why") }`, false, 1, "0 1 0\n"},
		{"panics", `func TestX(t *testing.T) { panic("why") }`, false, 1, "0 1 0\n"},
		{"does not compile", `func TestX(t *testing.T) { nothing() }`, false, 1, "0 1 0\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"go.mod":    "module m\n\ngo 1.26.0\n",
				"m_test.go": "package m\n\nimport \"testing\"\n\n" + tt.body + "\n",
				"skips":     "m\\.TestListed for the test\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("GOWORK", "off")
			t.Chdir(dir)
			tally := filepath.Join(dir, "tally")
			if got := run(filepath.Join(dir, "skips"), tally, tt.strict, []string{"./..."}); got != tt.want {
				t.Errorf("its status is %d, want %d", got, tt.want)
			}
			if text, err := os.ReadFile(tally); err != nil || string(text) != tt.tally {
				t.Errorf("it counted %q, %v; want %q", text, err, tt.tally)
			}
		})
	}
}

// FuzzSkips: no list panics.
func FuzzSkips(f *testing.F) {
	f.Add("p\\.TestC(/.*)? it may\n# comment\n")
	f.Fuzz(func(t *testing.T, text string) { _, _ = parseSkips(text) })
}

// FuzzRead: no output of go test panics.
func FuzzRead(f *testing.F) {
	f.Add(events)
	f.Fuzz(func(t *testing.T, text string) {
		_ = newReport(&strings.Builder{}, nil).read(strings.NewReader(text))
	})
}
