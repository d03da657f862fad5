//go:build !race

package holdfast_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestDocsCompile checks every Go block of the README and of docs/ as a program inside
// this module, or the nested one that it needs.
func TestDocsCompile(t *testing.T) {
	if os.Getenv("HOLDFAST_QUICK") != "" {
		t.Skip("compiles what changed, for half a minute")
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	docs := append(glob(t, "docs/*.md"), glob(t, "docs/recipes/*.md")...)
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

// TestPageOfTestingRuns: the program of docs/testing.md is the one that the examples run.
func TestPageOfTestingRuns(t *testing.T) {
	if !strings.Contains(read(t, "docs/testing.md"), "```go\n"+read(t, "examples/testing/mail_test.go")+"```\n") {
		t.Error("docs/testing.md has not the text of examples/testing/mail_test.go")
	}
}

// compile checks programs as the compiler does, against what the module at dir and those that it
// requires export, which one command compiles.
func compile(t *testing.T, dir string, programs map[string][]byte) {
	fset, files, imported := token.NewFileSet(), map[string]*ast.File{}, map[string]bool{}
	for name, program := range programs {
		f, err := parser.ParseFile(fset, name, program, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		files[name] = f
		for _, spec := range f.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			imported[path] = true
			if strings.Contains(path, "/internal/") {
				t.Errorf("%s imports %s, which no user can", name, path)
			}
		}
	}
	need := packages(t, dir, slices.Sorted(maps.Keys(imported))...)
	exports := need[0].exports
	conf := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }),
		Error:    func(err error) { t.Error(err) },
	}
	for name, f := range files {
		pkg, _ := conf.Check(name, fset, []*ast.File{f}, nil) // its errors were reported
		if f.Name.Name == "main" && pkg.Scope().Lookup("main") == nil {
			t.Errorf("%s has no main", name)
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || names == nil {
		t.Fatalf("%s: %v, %v", pattern, names, err)
	}
	return names
}

// moduleOf is the directory of the nested module that a block needs: the one that it
// imports, bench where it imports a peer, or examples where it imports miniredis; else "".
func moduleOf(block []byte, peers []string) string {
	for _, found := range regexp.MustCompile(`"`+regexp.QuoteMeta(module)+`/(\w+)`).FindAllSubmatch(block, -1) {
		if dir := string(found[1]); nested(dir) {
			return dir
		}
	}
	if bytes.Contains(block, []byte(`"github.com/alicebob/miniredis/v2"`)) {
		return "examples"
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
	tested := regexp.MustCompile(`(?m)^Tested on .*$`).FindString(read(t, "docs/servers.md"))
	if tested == "" || !strings.Contains(readme, tested) {
		t.Errorf("README.md does not say what docs/servers.md does: %q", tested)
	}
	// What stands above the table says where it comes from, which README.md links to.
	if _, table, _ := strings.Cut(read(t, "docs/throughput.md"), "\n\n"); !strings.HasPrefix(table, "|") || !strings.Contains(readme, table) {
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
	for _, name := range []string{"redis.md", "throughput.md", "local.md", "cluster.md", "cluster-changes.md", "beyond.md", "http.md", "discovery.md", "inbound.md", "simulated.md", "watch.md"} {
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

// TestMapOfDocuments: docs/README.md links to every document, and for recipes their own.
func TestMapOfDocuments(t *testing.T) {
	index := read(t, "docs/README.md") + read(t, "docs/recipes/README.md")
	for _, name := range handbook(t) {
		if link := "(" + filepath.Base(name) + ")"; strings.HasPrefix(name, "docs/") && filepath.Base(name) != "README.md" && !strings.Contains(index, link) {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}
