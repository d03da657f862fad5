//go:build !race

package holdfast_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// handbook is what people wrote: not what commands did, which is read with it.
func handbook(t *testing.T) []string {
	t.Helper()
	names := append(glob(t, "docs/*.md"), glob(t, "docs/recipes/*.md")...)
	return append(names, "README.md", "CONTRIBUTING.md", "SECURITY.md")
}

// fences are blocks of code: what is in them is not looked at.
var fences = regexp.MustCompile("(?ms)^```.*?^```$")

var spans = regexp.MustCompile("`([^`\n]+)`")

// codeSpans are the words of a document in backticks.
func codeSpans(text string) (out []string) {
	for _, m := range spans.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		out = append(out, m[1])
	}
	return out
}

// goFiles parses the Go files below a directory, of all modules.
func goFiles(t *testing.T, dir string, each func(path string, f *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		each(filepath.ToSlash(path), f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDocsNameWhatIsThere: tests, files, commands and links that the documents name
// exist, and in docs/architecture.md so does everything that looks like code.
func TestDocsNameWhatIsThere(t *testing.T) {
	funcs, declared := map[string]bool{}, map[string]bool{}
	goFiles(t, ".", func(path string, f *ast.File) {
		declared[f.Name.Name] = true
		ast.Inspect(f, func(n ast.Node) bool {
			var names []*ast.Ident
			switch n := n.(type) {
			case *ast.FuncDecl:
				if strings.HasSuffix(path, "_test.go") {
					funcs[n.Name.Name] = true
					return true
				}
				names = []*ast.Ident{n.Name}
			case *ast.TypeSpec:
				names = []*ast.Ident{n.Name}
			case *ast.ValueSpec:
				names = n.Names
			case *ast.Field:
				names = n.Names
			}
			for _, name := range names {
				declared[name.Name] = true
			}
			return true
		})
	})
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([\w-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	test := regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)[A-Z_]\w*`)
	word := regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$`)
	link := regexp.MustCompile(`\]\(([^)#:\s]+)(#[\w-]+)?\)`)
	tests := 0
	for _, name := range handbook(t) {
		text := read(t, name)
		for _, span := range codeSpans(text) {
			switch target, isMake := strings.CutPrefix(span, "make "); {
			case test.MatchString(span):
				tests++
				if !funcs[test.FindString(span)] {
					t.Errorf("%s names %s, which does not exist", name, span)
				}
			case isMake:
				if !targets[strings.Fields(target)[0]] {
					t.Errorf("%s: there is no `%s`", name, span)
				}
			case isPath(span):
				if !exists(span) {
					t.Errorf("%s: there is no file %s", name, span)
				}
			case name == "docs/architecture.md" && word.MatchString(span) && strings.ToUpper(span) != span:
				last := span[strings.LastIndex(span, ".")+1:]
				if !declared[last] && !known[span] {
					t.Errorf("%s: nothing in the source is called %s", name, span)
				}
			}
		}
		for _, m := range link.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
			target := filepath.Join(filepath.Dir(name), m[1])
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(read(t, target)), m[2]) {
				t.Errorf("%s links to %s%s: there is no such heading", name, m[1], m[2])
			}
		}
	}
	if tests < 100 {
		t.Errorf("only %d tests are named", tests)
	}
	// The names in the picture of the decision path.
	for _, name := range regexp.MustCompile(`\b[a-z]+[A-Z]\w*\b|\b(Source|Class|With|Err)[A-Z]\w*\b`).FindAllString(mermaid(t)[0], -1) {
		if !declared[name] {
			t.Errorf("the decision path names %s, which is not in the source", name)
		}
	}
}

// TestPromisesAreDerived: each of them names tests, and has its derivation.
func TestPromisesAreDerived(t *testing.T) {
	text := read(t, "docs/guarantees.md")
	for i := 1; i <= 8; i++ {
		row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| P%d \\|.*`Test\\w+`.*$", i))
		derived := regexp.MustCompile(fmt.Sprintf(`(?m)^(\*\*P%d\.\*\*|## P%d:)`, i, i))
		if !row.MatchString(text) || !derived.MatchString(text) {
			t.Errorf("docs/guarantees.md lacks the test or the derivation of P%d", i)
		}
	}
}

// known are words in backticks that are not the library's.
var known = map[string]bool{"prefix": true, "t": true, "l": true, "v": true, "s": true, "examples": true, "grpc": true, "otel": true, "bench": true, "go.mod": true, "go.work": true}

// TestNoTableStandsTwice: what is copied from one page into another is copied once.
func TestNoTableStandsTwice(t *testing.T) {
	table := regexp.MustCompile(`(?m)(?:^\|.*\n){3,}`)
	for _, page := range handbook(t) {
		seen := map[string]bool{}
		for _, rows := range table.FindAllString(read(t, page), -1) {
			if seen[rows] {
				t.Errorf("%s has twice\n%s", page, rows)
			}
			seen[rows] = true
		}
	}
}

// isPath tells names of files from other words.
func isPath(span string) bool {
	if strings.ContainsAny(span, " {}()$<>:,;=+") {
		return false
	}
	if dir, _, ok := strings.Cut(span, "/"); ok {
		info, err := os.Stat(dir)
		return err == nil && info.IsDir()
	}
	return strings.HasSuffix(span, "_test.go") || strings.HasSuffix(span, ".lua")
}

// exists also knows the scripts by the name of their folder, and files by their own.
func exists(path string) bool {
	for _, pattern := range []string{path, "internal/lua/" + path} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// anchors are the fragments by which the headings of a document are found.
func anchors(text string) (out []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		kept := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, "#"+strings.ReplaceAll(kept, " ", "-"))
	}
	return out
}

// mermaid returns the pictures of docs/architecture.md.
func mermaid(t *testing.T) (out []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?s)```mermaid\n(.*?)```").FindAllStringSubmatch(read(t, "docs/architecture.md"), -1) {
		out = append(out, m[1])
	}
	if len(out) != 3 {
		t.Fatalf("%d pictures in docs/architecture.md", len(out))
	}
	return out
}

// TestPictureOfImports: the picture of the packages is the table of imports, and of the
// nested modules what their files import.
func TestPictureOfImports(t *testing.T) {
	want := map[string][]string{}
	for pkg, list := range imports {
		switch pkg {
		case "", "internal/roundtrippertest", "internal/redisproc", "internal/redistest", "internal/faultproxy":
		default:
			want[pkg] = list
		}
	}
	for _, dir := range []string{"grpc", "otel"} {
		seen := map[string]bool{}
		goFiles(t, dir, func(path string, f *ast.File) {
			for _, spec := range f.Imports {
				imported, _ := strconv.Unquote(spec.Path.Value)
				if inside, ours := strings.CutPrefix(imported, module+"/"); ours && !strings.HasSuffix(path, "_test.go") {
					seen[inside] = true
				}
			}
		})
		want[dir] = slices.Collect(maps.Keys(seen))
	}
	picture := mermaid(t)[2]
	names, got := map[string]string{}, map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^ *(\w+)\["([\w/]+)"\]$`).FindAllStringSubmatch(picture, -1) {
		names[m[1]], got[m[2]] = m[2], nil
	}
	for _, m := range regexp.MustCompile(`(?m)^ *(\w+) --> (.*)$`).FindAllStringSubmatch(picture, -1) {
		for to := range strings.SplitSeq(m[2], "&") {
			if names[m[1]] == "" || names[strings.TrimSpace(to)] == "" {
				t.Fatalf("in %q a package has no name", m[0])
			}
			got[names[m[1]]] = append(got[names[m[1]]], names[strings.TrimSpace(to)])
		}
	}
	for pkg, list := range want {
		slices.Sort(list)
		drawn, there := got[pkg]
		slices.Sort(drawn)
		if !there || !slices.Equal(drawn, list) {
			t.Errorf("%s imports %v; drawn: %v", pkg, list, drawn)
		}
		delete(got, pkg)
	}
	for pkg := range got {
		t.Errorf("%s is drawn, and not a package that belongs there", pkg)
	}
}

// TestTableOfRedisKeys: docs/architecture.md has the names of the keys as they are made.
func TestTableOfRedisKeys(t *testing.T) {
	text, names := read(t, "docs/architecture.md"), lua.NewNamer("prefix")
	all := []string{names.Peers(0), names.Back(names.Peers(0), "name"), names.Probe("id"), names.Permits("id"), names.Learnt("id"), names.Limits("name")}
	texts, _ := names.Published()
	all = append(all, texts)
	for _, k := range algo.Kinds {
		all = append(all, names.KeysOf(k, "id").State())
	}
	for _, key := range all {
		if !strings.Contains(text, "`"+key+"`") {
			t.Errorf("docs/architecture.md does not have the key %s", key)
		}
	}
	for _, m := range regexp.MustCompile("`(prefix:v[12]:[^`]*)`").FindAllStringSubmatch(text, -1) {
		if !slices.Contains(all, m[1]) && m[1] != "prefix:v1:sampled:{"+lua.Sampled+"}" {
			t.Errorf("docs/architecture.md has the key %s, which nothing makes", m[1])
		}
	}
}

// TestProtectionsAreWhereTheySay: a function that CONTRIBUTING.md names before a file is in
// that file.
func TestProtectionsAreWhereTheySay(t *testing.T) {
	named := regexp.MustCompile(`^[\w.]+$`)
	checked := 0
	for _, line := range strings.Split(read(t, "CONTRIBUTING.md"), "\n") {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 3 {
			continue
		}
		var names []string
		for _, m := range spans.FindAllStringSubmatch(cells[1], -1) {
			path := strings.Replace(m[1], "scripts/", "internal/lua/scripts/", 1)
			if _, err := os.Stat(path); err != nil {
				if path = m[1]; named.MatchString(path) && !isPath(path) {
					names = append(names, path[strings.LastIndex(path, ".")+1:])
				}
				if _, err := os.Stat(path); err != nil {
					continue
				}
			}
			if info, err := os.Stat(path); err != nil || info.IsDir() {
				continue
			}
			for _, name := range names {
				checked++
				if !regexp.MustCompile(`\b` + name + `\b`).MatchString(read(t, path)) {
					t.Errorf("%s has no %s", path, name)
				}
			}
			names = nil
		}
	}
	if checked < 80 {
		t.Errorf("only %d names were checked", checked)
	}
}
