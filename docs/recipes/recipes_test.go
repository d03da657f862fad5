// Package recipes runs the recipes, each of which says at its end what it prints.
package recipes

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestRecipes: each recipe has at most 80 lines, is named in README.md, and prints what it says.
func TestRecipes(t *testing.T) {
	redistest.Require(t)
	mains, err := filepath.Glob("*/main.go")
	if err != nil || len(mains) < 7 {
		t.Fatalf("%d recipes, %v", len(mains), err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	// Without what a debugger needs, the linker has less to do.
	if out, err := exec.Command("go", "build", "-overlay", patient(t, mains), "-ldflags=-s -w", "-o", bin, "./...").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, file := range mains {
		name := filepath.Dir(file)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n > 80 {
				t.Errorf("%d lines, want at most 80", n)
			}
			if !bytes.Contains(readme, []byte("]("+name+"/main.go)")) {
				t.Error("README.md does not name it")
			}
			_, says, ok := strings.Cut(string(text), "\n// Output:\n")
			if !ok {
				t.Fatal("does not say what it prints")
			}
			says = regexp.MustCompile(`(?m)^// ?`).ReplaceAllString(says, "")
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, name))
			if name == "cluster" {
				cmd.Env = append(os.Environ(), "REDIS_CLUSTER="+strings.Join(redistest.StartCluster(t, 3, 0).Addrs(), ","))
			} else {
				cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+redistest.Start(t).Addr())
			}
			var log strings.Builder
			cmd.Stderr = &log
			out, err := cmd.Output()
			if err != nil || string(out) != says {
				t.Errorf("it prints\n%s(%v)\n%s\nand says\n%s", out, err, log.String(), says)
			}
		})
	}
}

// patient returns the path of an overlay for go build, in which each decision of the recipes may take 5 s: on a busy
// machine the first of them can take longer than the default budget, and would be local.
func patient(t *testing.T, mains []string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replace := map[string]string{}
	for _, file := range mains {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		made, option := []byte("limiter.New("), []byte("limiter.WithPrefix(")
		if bytes.Count(text, made) != bytes.Count(text, option) {
			t.Fatalf("%s: a limiter has no prefix, before which its budget could be set", file)
		}
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, option, append([]byte("limiter.WithBudget(5e9), "), option...))
		replace[path] = write(strings.ReplaceAll(file, string(filepath.Separator), "_"), text)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return write("overlay.json", overlay)
}
