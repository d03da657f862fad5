package scripts

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "github.com/holdfast-go/holdfast"

// published are the modules that get a tag, with a program that uses each, and what is to be
// got for it. Those of the root are in the README and in docs/getting-started.md.
var published = []struct{ dir, get, program, prints string }{
	{".", "", "", ""},
	{"grpc", root + "/grpc", `package main

import (
	"fmt"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
)

func main() {
	c, err := holdfastgrpc.NewClient()
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Unary() != nil)
}
`, "true\n"},
	{"otel", root + "/otel", `package main

import (
	"fmt"

	holdfastotel "github.com/holdfast-go/holdfast/otel"
)

func main() {
	in, err := holdfastotel.New()
	fmt.Println(in != nil, err)
}
`, "true <nil>\n"},
}

// TestStrangerGetsModules serves what would be tagged from a module proxy of its own, and
// does with each module what its user does: get it in an empty module, write a program,
// and run that.
func TestStrangerGetsModules(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles what modules require anew")
	}
	version, proxy := newest(t), t.TempDir()
	for _, m := range published {
		serve(t, proxy, m.dir, version)
	}
	env := strangerEnv(t, proxy)
	for _, m := range published {
		t.Run(modulePath(m.dir), func(t *testing.T) {
			dir := t.TempDir()
			if m.dir == "." {
				m.get = part(t, "../README.md", `\ngo get (\S+)\n`)
				m.program = strings.ReplaceAll(part(t, "../README.md", "(?s)```go\n(.*?)```"), "localhost:6379", "localhost:1")
				m.prints = part(t, "../README.md", "with Redis down\\s`(.*?)`") + "\n"
			}
			run := func(args ...string) string {
				t.Helper()
				cmd := exec.Command("go", args...)
				cmd.Dir, cmd.Env = dir, env
				var log strings.Builder
				cmd.Stderr = &log
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, out, &log)
				}
				return string(out)
			}
			run("mod", "init", "example.com/stranger")
			run("get", m.get+"@"+version)
			write(t, filepath.Join(dir, "main.go"), m.program)
			if out := run("run", "."); out != m.prints {
				t.Errorf("it prints %q, want %q", out, m.prints)
			}
			if out := run("list", "-m", "-f", "{{with .Replace}}replaced {{end}}{{.Version}}", root); out != version+"\n" {
				t.Errorf("it has %s of %s, want %s", out, root, version)
			}
			if m.dir != "." {
				return
			}
			page := "../docs/getting-started.md"
			write(t, filepath.Join(dir, "main.go"), part(t, page, "(?s)## The first client.*?```go\n(.*?)```"))
			run("mod", "tidy")
			if out, want := run("run", "."), part(t, page, "(?s)## The first client.*?```text\n(.*?)```"); out != want {
				t.Errorf("it prints %q, want %q", out, want)
			}
		})
	}
}

// part is what an expression captures in a file.
func part(t *testing.T, file, expression string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(expression).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has no %s", file, expression)
	}
	return string(m[1])
}

// newest is the version that the changelog tells of first, which is the next to be tagged.
func newest(t *testing.T) string {
	t.Helper()
	return "v" + part(t, "../CHANGELOG.md", `(?m)^## \[(\d+\.\d+\.\d+)\]`)
}

func modulePath(dir string) string {
	if dir == "." {
		return root
	}
	return root + "/" + dir
}

// strangerEnv is that of someone who has none of these modules. What else they require
// comes from this machine's module cache, so that nothing has to be downloaded where it
// is there, and from the usual proxy.
func strangerEnv(t *testing.T, proxy string) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(string(out))
	return append(os.Environ(),
		"GOPROXY="+strings.Join([]string{fileURL(proxy), fileURL(filepath.Join(known[0], "cache", "download")), known[1]}, ","),
		"GOMODCACHE="+t.TempDir(),                  // in which these versions must not stay
		"GOFLAGS=-modcacherw -trimpath",            // compiles what others compiled only once
		"GOWORK=off", "GOSUMDB=off", "GONOSUMDB=*", // the checksum database has not heard of them
		"GOPRIVATE=", "GONOPROXY=", "GOTOOLCHAIN=local",
	)
}

func fileURL(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/...
	}
	return "file://" + path
}

// serve writes a module into a proxy, as the go command makes one from a tag: without the
// modules within it, and with the root's license.
func serve(t *testing.T, proxy, dir, version string) {
	t.Helper()
	path := modulePath(dir)
	at := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	src := filepath.Join("..", dir)
	mod, err := os.ReadFile(filepath.Join(src, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(at, "list"), version+"\n")
	write(t, filepath.Join(at, version+".info"), fmt.Sprintf(`{"Version":%q}`, version))
	write(t, filepath.Join(at, version+".mod"), string(mod))
	file, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, prefix := zip.NewWriter(file), path+"@"+version+"/"
	err = filepath.WalkDir(src, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != src && (d.Name() == ".git" || exists(filepath.Join(name, "go.mod"))):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		rel, err := filepath.Rel(src, name)
		if err != nil {
			return err
		}
		return add(z, prefix+filepath.ToSlash(rel), name)
	})
	if dir != "." && !exists(filepath.Join(src, "LICENSE")) {
		err = errors.Join(err, add(z, prefix+"LICENSE", filepath.Join("..", "LICENSE")))
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
}

func add(z *zip.Writer, as, name string) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := z.Create(as)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return err
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
