//go:build !race

package holdfast_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redisproc"
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

// build builds programs with one command, through an overlay, so that nothing is written into the
// tree and what tests have compiled is used. TestStrangerGetsModules of module scripts has one of
// them in a module of its own. Their Redis is at the address in REDIS_ADDR.
func build(t *testing.T, programs ...lesson) (built []string) {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, replace := t.TempDir(), map[string]string{}
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, strconv.Itoa(len(replace)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, name)] = file
	}
	// Without what a debugger needs, the linker has less to do.
	args := []string{"build", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"), "-o", filepath.Join(dir, "bin") + "/"}
	for i, l := range programs {
		name := "lesson" + strconv.Itoa(i)
		write(name+"/main.go", strings.ReplaceAll(l.program, `"localhost:6379"`, "addr"))
		write(name+"/addr.go", "package main\n\nimport \"os\"\n\nvar addr = os.Getenv(\"REDIS_ADDR\")\n")
		args = append(args, "./"+name)
		built = append(built, filepath.Join(dir, "bin", name))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return built
}

// with is a program whose Redis is srv.
func with(srv *redisproc.Server, program string) *exec.Cmd {
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "REDIS_ADDR="+srv.Addr())
	return cmd
}

// patient is a lesson whose decisions may take 5 s: on a busy machine the first of them can
// take longer than the default budget, and would be local.
func (l lesson) patient() lesson {
	l.program = regexp.MustCompile(`(limiter\.New\(rdb, .*)\)\n`).ReplaceAllString(l.program, "$1, limiter.WithBudget(5e9))\n")
	return l
}

// TestFirstTenMinutes walks through docs/getting-started.md: each program does what the
// page says. So does that of the README, with Redis and without.
func TestFirstTenMinutes(t *testing.T) {
	redistest.Require(t)
	all := lessons(t)
	readme := regexp.MustCompile("(?s)```go\n(.*?)```\n\nWith Redis up it prints `([^`]*)`, with Redis down\\s+`([^`]*)`").FindStringSubmatch(read(t, "README.md"))
	if readme == nil {
		t.Fatal("README.md has no program with what it prints")
	}
	programs := build(t, all[0].patient(), all[1], all[2].patient(), all[3].patient(), lesson{program: readme[1]}.patient())
	for _, i := range []int{0, 2, 3} {
		t.Run([]string{"limit", "outage", "client", "server"}[i], func(t *testing.T) {
			t.Parallel()
			out, err := with(redistest.Start(t), programs[i]).Output()
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
		cmd := with(srv, programs[1])
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
	t.Run("README", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		prints := func(want string) {
			t.Helper()
			out, err := with(srv, programs[4]).Output()
			if got := strings.TrimSpace(string(out)); err != nil || got != want {
				t.Errorf("it prints %q (%v), the README says %q", got, err, want)
			}
		}
		prints(readme[2])
		if err := srv.Kill(); err != nil {
			t.Fatal(err)
		}
		prints(readme[3])
	})
}
