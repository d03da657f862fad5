package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAPI: what the packages export is what the folder api says.
func TestAPI(t *testing.T) {
	root := filepath.Join("..", "..")
	files, err := listings(root)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := filepath.Glob(filepath.Join(root, "api", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range golden {
		if name := filepath.Base(path); files[name] == "" {
			t.Errorf("api/%s is of no package: if it is meant to be gone, run make api", name)
		}
	}
	for name, text := range files {
		was, err := os.ReadFile(filepath.Join(root, "api", name))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		gone, added := difference(string(was), text)
		if len(gone)+len(added) > 0 {
			t.Errorf("api/%s differs: if that is meant, run make api, and tell of it in CHANGELOG.md\n- %s\n+ %s",
				name, strings.Join(gone, "\n- "), strings.Join(added, "\n+ "))
		}
	}
}

// difference is which lines are only in one of two texts.
func difference(was, is string) (gone, added []string) {
	a, b := slices.Collect(strings.Lines(was)), slices.Collect(strings.Lines(is))
	only := func(x, y []string) (out []string) {
		for _, line := range x {
			if !slices.Contains(y, line) {
				out = append(out, strings.TrimSpace(line))
			}
		}
		return out
	}
	return only(a, b), only(b, a)
}

func TestExported(t *testing.T) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", `package p

type hidden struct{}

func (hidden) Promoted(n int) {}
func (hidden) not() {}

type T[E any] struct {
	hidden
	Field Kind
	field int
}

func (*T[E]) Method(e E, more ...string) (int, error) { return 0, nil }

type Same = T[int]
type Kind uint8
type Any interface{ Do(); private() }
type Func func(Kind) bool

const (
	A Kind = iota
	B
	s = "hidden"
	S = "a\"b"
)

var Err, err error

func New[E any](f func(E) bool) (t *T[E]) { return nil }
func internal() {}
`, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := new(types.Config).Check("p", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"const A Kind = 0",
		"const B Kind = 1",
		`const S untyped string = "a\"b"`,
		"field Same.Field Kind",
		"field T.Field Kind",
		"func New[E any](f func(E) bool) (t *T[E])",
		"method Any.Do()",
		"method Same.Method(e int, more ...string) (int, error)",
		"method Same.Promoted(n int)",
		"method T.Method(e E, more ...string) (int, error)",
		"method T.Promoted(n int)",
		"type Any interface with methods that others cannot have",
		"type Func func(Kind) bool",
		"type Kind uint8",
		"type Same = struct",
		"type T struct",
		"var Err error",
	}
	if got := exported(pkg); !slices.Equal(got, want) {
		t.Errorf("it lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
