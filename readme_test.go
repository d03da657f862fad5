package holdfast_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeCompiles builds every Go block of the README as a program inside
// this module, through an overlay, so that nothing is written into the tree.
func TestReadmeCompiles(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) < 3 {
		t.Fatalf("only %d Go blocks", len(blocks))
	}
	for i, block := range blocks {
		t.Run(fmt.Sprint("block ", i+1), func(t *testing.T) {
			dir := t.TempDir()
			src := filepath.Join(dir, "main.go")
			if err := os.WriteFile(src, block[1], 0o600); err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
				filepath.Join(root, "readmeblock", "main.go"): src,
			}})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(file, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "block"), "-overlay", file, "./readmeblock").CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if out, err := exec.Command("gofmt", "-l", src).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("not formatted: %s %v", out, err)
			}
		})
	}
}

// TestReadmeFigures: the README's tables are those that were measured.
func TestReadmeFigures(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"docs/outage.md", "docs/http.md", "docs/throughput.md", "docs/beyond.md"} {
		measured, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(readme), string(measured)) {
			t.Errorf("the table in README.md is not that of %s", name)
		}
	}
}
