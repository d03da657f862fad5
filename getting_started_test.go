package holdfast_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// lesson is a program of docs/getting-started.md and what the page says that it prints.
type lesson struct{ program, prints string }

func lessons(t *testing.T) []lesson {
	t.Helper()
	page, err := os.ReadFile("docs/getting-started.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []lesson
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```\n\n```text\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		all = append(all, lesson{m[1], m[2]})
	}
	if len(all) != 4 {
		t.Fatalf("%d programs with what they print, want 4", len(all))
	}
	return all
}

// program builds a lesson whose Redis is at addr, in a module of its own that has this one
// as a user has it.
func (l lesson) build(t *testing.T, addr string) string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	// With the versions that are required here, so that nothing has to be looked up.
	write("go.mod", strings.Replace(string(mod), "module "+module, "module example.com/first", 1)+
		"\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n")
	write("go.sum", string(sum))
	write("main.go", strings.ReplaceAll(l.program, "localhost:6379", addr))
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -trimpath")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("build", "-o", "first", ".")
	return filepath.Join(dir, "first")
}

// patient is a lesson whose decisions may take 5 s: on a busy machine the first of them can
// take longer than the default budget, and would be local.
func (l lesson) patient() lesson {
	l.program = regexp.MustCompile(`(limiter\.New\(rdb, .*)\)\n`).ReplaceAllString(l.program, "$1, limiter.WithBudget(5e9))\n")
	return l
}

// TestFirstTenMinutes walks through docs/getting-started.md: each program does what the
// page says.
func TestFirstTenMinutes(t *testing.T) {
	redistest.Require(t)
	all := lessons(t)
	for _, i := range []int{0, 2, 3} {
		t.Run([]string{"limit", "outage", "client", "server"}[i], func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(all[i].patient().build(t, redistest.Start(t).Addr()))
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if string(out) != all[i].prints {
				t.Errorf("it prints\n%s\nthe page says\n%s", out, all[i].prints)
			}
		})
	}
	t.Run("outage", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		said := strings.SplitAfter(strings.TrimSpace(all[1].prints), "\n")
		if len(said) != 3 {
			t.Fatalf("the page says %q", said)
		}
		cmd := exec.Command(all[1].build(t, srv.Addr()))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		end := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer end.Stop()
		lines := bufio.NewScanner(out)
		// Each line is one of the three; next are those that come now.
		step := func(next string, then func() error) {
			t.Helper()
			for lines.Scan() {
				line := lines.Text()
				if !strings.Contains(all[1].prints, line) {
					t.Errorf("it prints %q", line)
				}
				if line == strings.TrimSpace(next) {
					if err := then(); err != nil {
						t.Fatal(err)
					}
					return
				}
			}
			t.Fatalf("it never prints %q", next)
		}
		step(said[0], srv.Kill)
		step(said[1], srv.Restart)
		step(said[2], func() error { return nil })
	})
}

// TestReadmeProgram: the program of the README prints what the README says, with Redis and
// without.
func TestReadmeProgram(t *testing.T) {
	redistest.Require(t)
	m := regexp.MustCompile("(?s)```go\n(.*?)```\n\nWith Redis up it prints `([^`]*)`, with Redis down\\s+`([^`]*)`").FindStringSubmatch(read(t, "README.md"))
	if m == nil {
		t.Fatal("README.md has no program with what it prints")
	}
	srv := redistest.Start(t)
	program := lesson{program: m[1]}.patient().build(t, srv.Addr())
	prints := func(want string) {
		t.Helper()
		out, err := exec.Command(program).Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("it prints %q (%v), the README says %q", got, err, want)
		}
	}
	prints(m[2])
	if err := srv.Kill(); err != nil {
		t.Fatal(err)
	}
	prints(m[3])
}
