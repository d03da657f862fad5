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
// this module, or the nested one that it imports, through an overlay, so that
// nothing is written into the tree.
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
			dir, mod := t.TempDir(), filepath.Join(root, nestedModule(block[1]))
			src := filepath.Join(dir, "main.go")
			if err := os.WriteFile(src, block[1], 0o600); err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
				filepath.Join(mod, "readmeblock", "main.go"): src,
			}})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(file, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			build := exec.Command("go", "build", "-o", filepath.Join(dir, "block"), "-overlay", file, "./readmeblock")
			build.Dir = mod
			if out, err := build.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if out, err := exec.Command("gofmt", "-l", src).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("not formatted: %s %v", out, err)
			}
		})
	}
}

// nestedModule is the directory of the nested module that a block imports; ""
// when it imports none.
func nestedModule(block []byte) string {
	for _, found := range regexp.MustCompile(`"`+regexp.QuoteMeta(module)+`/(\w+)`).FindAllSubmatch(block, -1) {
		if dir := string(found[1]); nested(dir) {
			return dir
		}
	}
	return ""
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
	// Of these, the README has the first table, for requests that are served, and the
	// last, for what observing adds.
	inbound, err := os.ReadFile("docs/inbound.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := regexp.MustCompile(`(?m)(^\|.*\n)+`).FindAllString(string(inbound), -1)
	if len(tables) != 3 {
		t.Fatalf("%d tables in docs/inbound.md", len(tables))
	}
	for _, i := range []int{0, 2} {
		if !strings.Contains(string(readme), tables[i]) {
			t.Errorf("README.md does not have table %d of docs/inbound.md", i+1)
		}
	}
}
