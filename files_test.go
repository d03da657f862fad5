//go:build !race

package holdfast_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLimiterStaysSmall: what users of package limiter must know is bounded. Who adds a name
// takes another one out.
func TestLimiterStaysSmall(t *testing.T) {
	const most = 110
	names := 0
	for line := range strings.Lines(read(t, "api/limiter.txt")) {
		if !strings.HasPrefix(line, "field ") {
			names++
		}
	}
	if names > most || names < most/2 {
		t.Errorf("package limiter exports %d names beside fields, want at most %d", names, most)
	}
}

// TestEnumerationsPrintAsWords: every exported enumeration has the methods by which fmt, JSON
// and both formats of slog print it as a word. A set of bits is none.
func TestEnumerationsPrintAsWords(t *testing.T) {
	lists, err := filepath.Glob("api/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, list := range lists {
		listing := read(t, list)
		for line := range strings.Lines(listing) {
			name, is := strings.CutPrefix(strings.TrimSuffix(line, " uint8\n"), "type ")
			if !is || !strings.HasSuffix(line, " uint8\n") || name == "Headers" {
				continue
			}
			seen++
			for _, method := range []string{".String() string\n", ".MarshalText() ([]byte, error)\n"} {
				if !strings.Contains(listing, "method "+name+method) {
					t.Errorf("%s: %s has no method %s", list, name, method)
				}
			}
		}
	}
	if seen < 13 {
		t.Errorf("only %d enumerations were found", seen)
	}
}

// TestFilesStandInAnOrder: a file of a package uses what other files declare. The files can
// be put in an order in which at most 15 % of these arrows run back up, so that a package
// can be read from one end to the other.
func TestFilesStandInAnOrder(t *testing.T) {
	seen := 0
	for _, dir := range []string{".", "grpc", "otel"} {
		for _, p := range packages(t, dir, "./...") {
			if p.Standard || p.Module == nil || !p.Module.Main || strings.Contains(p.ImportPath, "/scripts") {
				continue
			}
			seen++
			arrows := arrowsOf(t, p)
			up := back(arrows)
			name := strings.TrimPrefix(p.ImportPath, module+"/")
			t.Logf("%s: %d of %d arrows run back up", name, up, len(arrows))
			if 100*up > 15*len(arrows) {
				t.Errorf("%s: %d of %d arrows between files run back up, more than 15 %%", name, up, len(arrows))
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d packages were read", seen)
	}
}

// listed is a package as `go list` describes it.
type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	Standard                bool
	Module                  *struct{ Main bool }
	exports                 map[string]string // files with what packages export
}

// packages lists packages as a module sees them and what they need, with what they export.
func packages(t *testing.T, dir string, patterns ...string) (out []*listed) {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,Standard,Module"}, patterns...)...)
	list.Dir, list.Env = dir, append(os.Environ(), "GOWORK=off")
	text, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(text))); ; {
		p := &listed{exports: exports}
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		out = append(out, p)
	}
}

// arrow is from a file to one that declares what it uses.
type arrow struct{ from, to string }

func arrowsOf(t *testing.T, p *listed) map[arrow]bool {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(p.exports[path]) })}
	pkg, err := conf.Check(p.ImportPath, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	arrows := map[arrow]bool{}
	for id, used := range info.Uses {
		if used.Pkg() != pkg || !used.Pos().IsValid() {
			continue
		}
		if a := (arrow{fset.Position(id.Pos()).Filename, fset.Position(used.Pos()).Filename}); a.from != a.to {
			arrows[a] = true
		}
	}
	return arrows
}

// back is how many arrows run back up in the best order that is found by moving one file at
// a time.
func back(arrows map[arrow]bool) int {
	files := map[string]bool{}
	for a := range arrows {
		files[a.from], files[a.to] = true, true
	}
	order := slices.Sorted(maps.Keys(files))
	best := upward(order, arrows)
	for improved := true; improved; {
		improved = false
		for _, file := range slices.Clone(order) {
			rest := slices.DeleteFunc(slices.Clone(order), func(f string) bool { return f == file })
			for i := range len(order) {
				try := slices.Insert(slices.Clone(rest), i, file)
				if n := upward(try, arrows); n < best {
					order, best, improved = try, n, true
				}
			}
		}
	}
	return best
}

// upward is how many arrows run from a later file to an earlier one.
func upward(order []string, arrows map[arrow]bool) (n int) {
	at := map[string]int{}
	for i, file := range order {
		at[file] = i
	}
	for a := range arrows {
		if at[a.from] > at[a.to] {
			n++
		}
	}
	return n
}
