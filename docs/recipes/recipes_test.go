// Package recipes runs the recipes, each of which says at its end what it prints.
package recipes

import (
	"bytes"
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
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, "./...").CombinedOutput(); err != nil {
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
