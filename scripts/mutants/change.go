package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// source is a package with all changes in its texts.
type source struct {
	root, name string
	texts      map[string]string // by path
	changes    []*change
	scripts    []edited // the last changes
}

// change is one place that is changed in one way.
type change struct {
	n     int    // its number, from 1
	id    string // the file, the function, and what becomes of what
	line  int
	found bool
}

// listed is a package as go list describes it.
type listed struct {
	Dir, ImportPath, Name, Export string
	GoFiles                       []string
	ImportMap                     map[string]string
	DepOnly                       bool
}

// load reads a package of the module at root and makes its changes.
func load(root, dir string) (*source, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	list := exec.Command("go", "list", "-export", "-deps", "-json=Dir,ImportPath,Name,Export,GoFiles,DepOnly", ".")
	list.Dir, list.Stderr = filepath.Join(root, dir), os.Stderr // which may be of a nested module
	out, err := list.Output()
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	var pkg listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			pkg = p
		}
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range pkg.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(pkg.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	checked, err := conf.Check(pkg.ImportPath, fset, files, info)
	if err != nil {
		return nil, err
	}
	p := &source{root: root, name: pkg.Name, texts: map[string]string{}}
	same := map[string]int{}
	for i, f := range files {
		path := filepath.Join(pkg.Dir, pkg.GoFiles[i])
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		fc := &fileChanges{source: p, name: filepath.ToSlash(filepath.Join(dir, pkg.GoFiles[i])), fset: fset, file: f, text: string(text), info: info, pkg: checked, same: same, skip: map[ast.Node]bool{}}
		p.texts[path] = fc.apply()
	}
	return p, p.loadScripts(dir)
}

// fileChanges makes the changes of a file, by inserting what chooses between what is there
// and what it becomes. What it becomes is made of what was there, without changes in it.
type fileChanges struct {
	*source
	name    string
	fset    *token.FileSet
	file    *ast.File
	text    string
	info    *types.Info
	pkg     *types.Package
	fn      string         // the function
	same    map[string]int // how often an id was there
	skip    map[ast.Node]bool
	inserts []insert
}

// insert is a text to be inserted. At one place what ends comes before what begins, the
// inner before the outer where they end, and the outer before the inner where they begin.
type insert struct {
	at, other int
	ends      bool
	order     int
	text      string
}

func (f *fileChanges) at(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *fileChanges) of(n ast.Node) string { return f.text[f.at(n.Pos()):f.at(n.End())] }

// add counts a change.
func (f *fileChanges) add(n ast.Node, becomes string) int {
	id := fmt.Sprintf("%s %s: %s => %s", f.name, f.fn, cut(f.of(n)), cut(becomes))
	f.same[id]++
	if k := f.same[id]; k > 1 {
		id += fmt.Sprintf(" #%d", k)
	}
	f.changes = append(f.changes, &change{n: len(f.changes) + 1, id: id, line: f.fset.Position(n.Pos()).Line})
	return len(f.changes)
}

func (f *fileChanges) wrap(n ast.Node, before, after string) {
	k := len(f.inserts)
	f.inserts = append(f.inserts,
		insert{at: f.at(n.Pos()), other: f.at(n.End()), order: k, text: before},
		insert{at: f.at(n.End()), other: f.at(n.Pos()), ends: true, order: k, text: after})
}

// expr makes an expression another one of the same type.
func (f *fileChanges) expr(n ast.Expr, becomes string) {
	name, ok := f.typeName(n)
	if !ok {
		return
	}
	f.wrap(n, fmt.Sprintf("func() %s { if mutated(%d) { return %s }; return ", name, f.add(n, becomes), becomes), " }()")
}

// typeName is the type of an expression as this file can say it.
func (f *fileChanges) typeName(n ast.Expr) (string, bool) {
	t := types.Default(f.info.Types[n].Type)
	ok := true
	name := types.TypeString(t, func(p *types.Package) string {
		if p == f.pkg {
			return ""
		}
		for _, imp := range f.file.Imports {
			if strings.Trim(imp.Path.Value, `"`) == p.Path() {
				if imp.Name != nil {
					return imp.Name.Name
				}
				return p.Name()
			}
		}
		ok = false
		return p.Name()
	})
	return name, ok
}

func (f *fileChanges) apply() string {
	for _, d := range f.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			f.fn = d.Name.Name
			if d.Recv != nil && len(d.Recv.List) == 1 {
				f.fn = strings.Trim(strings.Split(f.of(d.Recv.List[0].Type), "[")[0], "*") + "." + f.fn
			}
			if d.Body != nil {
				f.walk(d.Body)
			}
		case *ast.GenDecl:
			f.fn = "var"
			if d.Tok == token.VAR {
				f.walk(d)
			}
		}
	}
	slices.SortStableFunc(f.inserts, func(a, b insert) int {
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.ends != b.ends:
			if a.ends {
				return -1
			}
			return 1
		case a.ends && a.other != b.other:
			return b.other - a.other // the inner began later
		case a.ends:
			return b.order - a.order
		case a.other != b.other:
			return b.other - a.other // the outer ends later
		}
		return a.order - b.order
	})
	var out strings.Builder
	last := 0
	for _, in := range f.inserts {
		out.WriteString(f.text[last:in.at])
		out.WriteString(in.text)
		last = in.at
	}
	out.WriteString(f.text[last:])
	return out.String()
}

func (f *fileChanges) walk(root ast.Node) {
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil || f.skip[n] {
			return false
		}
		switch n := n.(type) {
		case *ast.BlockStmt:
			f.stmts(n.List)
		case *ast.CaseClause:
			f.stmts(n.Body)
		case *ast.CommClause:
			f.stmts(n.Body)
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.ArrayType:
			return false
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "make" {
				return false // sizes change nothing that can be seen
			}
			if f.info.Types[n.Fun].IsType() {
				break
			}
		case *ast.IndexExpr:
			if f.info.Types[n.Index].IsType() {
				return false
			}
		case *ast.KeyValueExpr:
			f.skip[n.Key] = true
		case *ast.SwitchStmt:
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					if f.info.Types[e].Value != nil {
						f.skip[e] = true
					}
				}
			}
		case *ast.IfStmt:
			if f.info.Types[n.Cond].Value == nil && !isComparison(n.Cond) {
				f.wrap(n.Cond, fmt.Sprintf("mutated(%d) != (", f.add(n.Cond, "!("+f.of(n.Cond)+")")), ")")
			}
		}
		if e, ok := n.(ast.Expr); ok {
			tv := f.info.Types[e]
			if tv.Value != nil && tv.IsValue() {
				f.constant(e, tv)
				return false
			}
			if b, ok := e.(*ast.BinaryExpr); ok {
				f.binary(b)
			}
		}
		return true
	})
}

func isComparison(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	return ok && (b.Op == token.EQL || b.Op == token.NEQ)
}

// others says what becomes of an operator.
var others = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR}, token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
}

func (f *fileChanges) binary(n *ast.BinaryExpr) {
	t, ok := f.info.Types[n].Type.Underlying().(*types.Basic)
	if !ok || t.Info()&types.IsString != 0 {
		return
	}
	at := f.at(n.OpPos)
	for _, op := range others[n.Op] {
		if op == token.QUO {
			if v := f.info.Types[n.Y].Value; v != nil && constant.Sign(v) == 0 {
				continue
			}
		}
		f.expr(n, f.text[f.at(n.Pos()):at]+op.String()+f.text[at+len(n.Op.String()):f.at(n.End())])
	}
}

func (f *fileChanges) constant(e ast.Expr, tv types.TypeAndValue) {
	t, ok := types.Default(tv.Type).Underlying().(*types.Basic)
	if !ok {
		return
	}
	text := f.of(e)
	switch {
	case t.Info()&types.IsBoolean != 0:
		f.expr(e, "!"+text)
	case strings.HasSuffix(tv.Type.String(), "time.Duration"):
		// A nanosecond more than nothing is nothing, and twice the longest time is no time.
		if constant.Sign(tv.Value) > 0 && constant.Compare(tv.Value, token.LSS, constant.Shift(constant.MakeInt64(1), token.SHL, 62)) {
			f.expr(e, "2 * ("+text+")")
		}
	case t.Info()&types.IsInteger != 0 && fits(tv.Value, t):
		f.expr(e, text+" + 1")
	case t.Info()&types.IsFloat != 0:
		f.expr(e, text+" + 1")
	}
}

// fits reports whether one more is a value of the type, too.
func fits(v constant.Value, t *types.Basic) bool {
	size := map[types.BasicKind]uint{types.Int8: 7, types.Int16: 15, types.Int32: 31, types.Uint8: 8, types.Uint16: 16, types.Uint32: 32, types.Uint64: 64, types.Uint: 32}[t.Kind()]
	if size == 0 {
		size = 62
	}
	return constant.Compare(constant.BinaryOp(v, token.ADD, constant.MakeInt64(1)), token.LSS, constant.Shift(constant.MakeInt64(1), token.SHL, size))
}

// stmts leaves statements out, except those that lock: that is for the race detector.
func (f *fileChanges) stmts(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok {
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasSuffix(strings.ToLower(sel.Sel.Name), "lock") {
					continue
				}
				if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "panic" {
					continue
				}
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || f.of(s.Lhs[0]) == "_" {
				continue
			}
		case *ast.DeferStmt:
			if sel, ok := s.Call.Fun.(*ast.SelectorExpr); ok && strings.HasSuffix(strings.ToLower(sel.Sel.Name), "lock") {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok != token.BREAK && s.Tok != token.CONTINUE {
				continue
			}
		case *ast.IncDecStmt, *ast.GoStmt, *ast.SendStmt:
		default:
			continue
		}
		f.wrap(s, fmt.Sprintf("if !mutated(%d) { ", f.add(s, "nothing")), " }")
	}
}
