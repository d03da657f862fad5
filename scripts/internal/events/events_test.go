package events

import (
	"strings"
	"testing"
)

const said = `{"Action":"start","Package":"p"}
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
	r := New(&out, may)
	if err := r.Read(strings.NewReader(said)); err != nil {
		t.Fatal(err)
	}
	const want = "    d_test.go:1: wrong\nFAIL\nFAIL\tp\t0.1s\npanic: over\nok  \tr\t0.1s\nno event\n"
	if out.String() != want {
		t.Errorf("it prints\n%s\nwant\n%s", &out, want)
	}
	if r.Passed != 1 || r.Failed != 2 || r.Skipped != 2 {
		t.Errorf("%d passed, %d failed, %d skipped", r.Passed, r.Failed, r.Skipped)
	}
	if got := strings.Join(r.Skips, "\n"); got != "skipped: p.TestB: b_test.go:1: no redis" {
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

// FuzzSkips: no list panics.
func FuzzSkips(f *testing.F) {
	f.Add("p\\.TestC(/.*)? it may\n# comment\n")
	f.Fuzz(func(t *testing.T, text string) { _, _ = parseSkips(text) })
}

// FuzzRead: no output of go test panics.
func FuzzRead(f *testing.F) {
	f.Add(said)
	f.Fuzz(func(t *testing.T, text string) {
		_ = New(&strings.Builder{}, nil).Read(strings.NewReader(text))
	})
}
