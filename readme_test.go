package holdfast_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocsCompile builds every Go block of the README and of docs/ as a program inside
// this module, or the nested one that it needs, through an overlay, so that nothing is
// written into the tree. One command builds all blocks of a module.
func TestDocsCompile(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	peers, seen := peers(t), map[string]int{}
	programs := map[string]map[string][]byte{} // by module and name
	for _, doc := range append(docs, "README.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1) {
			dir := moduleOf(block[1], peers)
			seen[doc]++
			seen[dir]++
			name := fmt.Sprint(strings.TrimSuffix(filepath.Base(doc), ".md"), "-block", i+1)
			if programs[dir] == nil {
				programs[dir] = map[string][]byte{}
			}
			programs[dir][name] = block[1]
			if formatted, err := format.Source(block[1]); err != nil || !bytes.Equal(formatted, block[1]) {
				t.Errorf("%s is not formatted: %v", name, err)
			}
		}
	}
	for dir, blocks := range programs {
		t.Run(filepath.Join("holdfast", dir), func(t *testing.T) {
			t.Parallel()
			compile(t, filepath.Join(root, dir), blocks)
		})
	}
	for name, want := range map[string]int{
		"README.md": 1, "docs/getting-started.md": 4, "docs/usage.md": 3, "docs/httpclient.md": 1, "docs/middleware.md": 1,
		"docs/grpc.md": 1, "docs/observability.md": 1, "docs/migrating.md": 3, "bench": 3, "grpc": 1, "otel": 1,
	} {
		if seen[name] < want {
			t.Errorf("%d Go blocks of %s, want %d or more", seen[name], name, want)
		}
	}
}

// compile builds programs in the module at dir.
func compile(t *testing.T, dir string, programs map[string][]byte) {
	tmp, replace := t.TempDir(), map[string]string{}
	args := []string{"list", "-export", "-overlay", filepath.Join(tmp, "overlay.json")} // compiles, and does not link
	for name, program := range programs {
		src := filepath.Join(tmp, name+".go")
		if err := os.WriteFile(src, program, 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(dir, "docsblock", name, "main.go")] = src
		args = append(args, "./docsblock/"+name)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tmp, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", args...)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// moduleOf is the directory of the nested module that a block needs: the one that it
// imports, or bench where it imports a peer; "" when neither.
func moduleOf(block []byte, peers []string) string {
	for _, found := range regexp.MustCompile(`"`+regexp.QuoteMeta(module)+`/(\w+)`).FindAllSubmatch(block, -1) {
		if dir := string(found[1]); nested(dir) {
			return dir
		}
	}
	for _, peer := range peers {
		if bytes.Contains(block, []byte(`"`+peer)) {
			return "bench"
		}
	}
	return ""
}

// peers are the modules that bench requires and the root does not.
func peers(t *testing.T) (out []string) {
	t.Helper()
	required := func(file string) map[string]bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		paths := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllSubmatch(text, -1) {
			paths[string(m[1])] = true
		}
		return paths
	}
	ours := required("go.mod")
	for path := range required("bench/go.mod") {
		if !ours[path] && !strings.HasPrefix(path, module) {
			out = append(out, path)
		}
	}
	return out
}

// TestFigures: the tables of README.md and docs/measurements.md are those that were
// measured.
func TestFigures(t *testing.T) {
	readme, page := read(t, "README.md"), read(t, "docs/measurements.md")
	if !strings.Contains(readme, read(t, "docs/throughput.md")) {
		t.Error("the table in README.md is not that of docs/throughput.md")
	}
	for _, name := range []string{"docs/outage.md", "docs/fleets.md", "docs/throughput.md", "docs/beyond.md", "docs/http.md"} {
		if !strings.Contains(page, read(t, name)) {
			t.Errorf("the table in docs/measurements.md is not that of %s", name)
		}
	}
	// Of these, the page has the first table, for requests that are served, and the
	// last, for what observing adds.
	tables := regexp.MustCompile(`(?m)(^\|.*\n)+`).FindAllString(read(t, "docs/inbound.md"), -1)
	if len(tables) != 3 {
		t.Fatalf("%d tables in docs/inbound.md", len(tables))
	}
	for _, i := range []int{0, 2} {
		if !strings.Contains(page, tables[i]) {
			t.Errorf("docs/measurements.md does not have table %d of docs/inbound.md", i+1)
		}
	}
}

// TestTablesSayWhereTheyComeFrom: tables that commands have measured say which, when, at
// which commit of this history, and on what. Whether that is still the code of today is
// what scripts/measured says, which a release asks.
func TestTablesSayWhereTheyComeFrom(t *testing.T) {
	form := regexp.MustCompile("^Measured by `make [a-z-]+` on \\d{4}-\\d\\d-\\d\\d at commit [0-9a-f]{10}, go1\\.[0-9.]+[.,]")
	for _, name := range []string{"redis.md", "cluster.md", "beyond.md", "http.md"} {
		if first, _, _ := strings.Cut(read(t, "docs/"+name), "\n"); !form.MatchString(first) {
			t.Errorf("docs/%s begins with %q", name, first)
		}
	}
}

// TestReadmeIsShort: what does not fit belongs into a document of its own.
func TestReadmeIsShort(t *testing.T) {
	if lines := strings.Count(read(t, "README.md"), "\n"); lines > 220 {
		t.Errorf("README.md has %d lines, at most 220 are allowed", lines)
	}
}

// TestMapOfDocuments: docs/README.md links to every document.
func TestMapOfDocuments(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, name := range handbook(t) {
		if link := "(" + filepath.Base(name) + ")"; strings.HasPrefix(name, "docs/") && name != "docs/README.md" && !strings.Contains(index, link) {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}
