package main

import (
	"os"
	"path/filepath"
	"testing"
)

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
