// Command api writes what each published package exports to the folder api of the root: an
// identifier with its signature per line, sorted. Golden files of this kind show in a
// review what a change breaks.
//
//	api [-root ..]
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/constant"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/holdfast-go/holdfast"

// published are the directories of modules that get a tag.
var published = []string{".", "grpc", "otel"}

func main() {
	log.SetFlags(0)
	root := flag.String("root", "..", "directory of the root module")
	flag.Parse()
	files, err := listings(*root)
	if err != nil {
		log.Fatal(err)
	}
	dir := filepath.Join(*root, "api")
	if err := os.RemoveAll(dir); err != nil {
		log.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// listings are the files of all published packages, by name.
func listings(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, dir := range published {
		export, ours, err := compile(filepath.Join(root, dir))
		if err != nil {
			return nil, err
		}
		imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
			if export[path] == "" {
				return nil, fmt.Errorf("nothing was compiled for %s", path)
			}
			return os.Open(export[path])
		})
		for _, path := range ours {
			pkg, err := imp.Import(path)
			if err != nil {
				return nil, err
			}
			if lines := exported(pkg); len(lines) > 0 {
				name := strings.ReplaceAll(strings.TrimPrefix(path, module+"/"), "/", "-") + ".txt"
				files[name] = strings.Join(lines, "\n") + "\n"
			}
		}
	}
	return files, nil
}

// compile returns where the export data of all packages are that a module needs, and which
// of its packages others may import.
func compile(dir string) (export map[string]string, ours []string, err error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.DepOnly}}\t{{.Name}}", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list in %s: %w\n%s", dir, err, &stderr)
	}
	export = map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		f := strings.Split(lines.Text(), "\t")
		export[f[0]] = f[1]
		inside := strings.Contains(f[0]+"/", "/internal/")
		if f[2] == "false" && f[3] != "main" && !inside {
			ours = append(ours, f[0])
		}
	}
	return export, ours, lines.Err()
}

// exported are the lines of a package.
func exported(pkg *types.Package) (lines []string) {
	name := func(p *types.Package) string {
		if p == pkg {
			return ""
		}
		return p.Name()
	}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, id := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(id)
		if !obj.Exported() {
			continue
		}
		switch obj := obj.(type) {
		case *types.Const:
			value := obj.Val().ExactString()
			if obj.Val().Kind() == constant.String {
				value = obj.Val().String()
			}
			add("const %s %s = %s", id, types.TypeString(obj.Type(), name), value)
		case *types.Var:
			add("var %s %s", id, types.TypeString(obj.Type(), name))
		case *types.Func:
			add("func %s%s", id, signature(obj, name))
		case *types.TypeName:
			for _, line := range typeLines(obj, name) {
				add("%s", line)
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func signature(f *types.Func, name types.Qualifier) string {
	return strings.TrimPrefix(types.TypeString(f.Type(), name), "func")
}

// typeLines are a type, its exported fields, and the methods that its pointer has, also
// those of what it embeds and of what it is an alias of.
func typeLines(obj *types.TypeName, name types.Qualifier) (lines []string) {
	id, typ := obj.Name(), obj.Type()
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	equals := ""
	if obj.IsAlias() {
		equals = "= "
	}
	switch under := typ.Underlying().(type) {
	case *types.Struct:
		add("type %s %sstruct", id, equals)
		for f := range under.Fields() {
			if f.Exported() {
				add("field %s.%s %s", id, f.Name(), types.TypeString(f.Type(), name))
			}
		}
	case *types.Interface:
		hidden := ""
		for m := range under.Methods() {
			if !m.Exported() {
				hidden = " with methods that others cannot have"
			}
		}
		add("type %s %sinterface%s", id, equals, hidden)
	default:
		add("type %s %s%s", id, equals, types.TypeString(under, name))
	}
	if !types.IsInterface(typ) {
		typ = types.NewPointer(typ)
	}
	methods := types.NewMethodSet(typ)
	for sel := range methods.Methods() {
		if f, ok := sel.Obj().(*types.Func); ok && f.Exported() {
			add("method %s.%s%s", id, f.Name(), signature(f, name))
		}
	}
	return lines
}
