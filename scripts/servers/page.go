package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// page is docs/servers.md: the line that README.md has, what each suite did on each
// server, and what was skipped and why.
func page(ctx context.Context, rows []row, suites []suite) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Tested by `make test-servers` on %s at commit %.10s, %s, %d cores of %s.\n\n",
		time.Now().UTC().Format(time.DateOnly), said(ctx, "git", "rev-parse", "HEAD"), runtime.Version(), runtime.NumCPU(), processor())
	fmt.Fprintf(&b, "%s\n\n", sentence(rows))
	b.WriteString("## Tests\n\nPassed tests, with the rows of their tables; after a plus sign, those that skipped:\n\n| suite | package |")
	for _, r := range rows {
		fmt.Fprintf(&b, " %s |", r.version)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(rows)) + "\n")
	var names []string
	for _, s := range suites {
		if !slices.Contains(names, s.name) {
			names = append(names, s.name)
			fmt.Fprintf(&b, "| %s | `%s` |", s.name, s.dir)
			for _, r := range rows {
				passed, _, skipped := r.sum(s.name)
				fmt.Fprintf(&b, " %s |", cell(passed, skipped))
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("| all | |")
	for _, r := range rows {
		passed, _, skipped := r.sum("")
		fmt.Fprintf(&b, " %s |", cell(passed, skipped))
	}
	b.WriteString("\n\n## Servers\n\nWhere they are from:\n\n| server | Debian | package |\n|---|---|---|\n")
	for _, r := range rows {
		pkg, _, _ := strings.Cut(r.server.pkg, "/")
		debian := r.server.debian[strings.LastIndexByte(r.server.debian, ',')+1:]
		fmt.Fprintf(&b, "| %s | %s | `%s` |\n", r.version, debian, pkg)
	}
	if slices.ContainsFunc(rows, func(r row) bool { return r.cost != nil }) {
		b.WriteString(costTable(rows))
	}
	for _, r := range rows {
		if skips := r.skips(); len(skips) > 0 {
			fmt.Fprintf(&b, "\n## Skipped on %s\n\n| test | why |\n|---|---|\n%s", r.version, strings.Join(skips, ""))
		}
	}
	return b.String()
}

func cell(passed, skipped int) string {
	if skipped > 0 {
		return fmt.Sprintf("%d + %d", passed, skipped)
	}
	return fmt.Sprint(passed)
}

// sentence names the servers by their versions.
func sentence(rows []row) string {
	of := map[string][]string{}
	for _, r := range rows {
		product, version, _ := strings.Cut(r.version, " ")
		of[product] = append(of[product], version)
	}
	return "Tested on Redis " + list(of["Redis"]) + ", and on Valkey " + list(of["Valkey"]) + "."
}

func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

var (
	skipLine = regexp.MustCompile(`^skipped: \S+?\.((?:Test|Example)\S*): (?:\S+_test\.go:\d+: )?(.*)$`)
	position = regexp.MustCompile(`^\S+\.go:\d+: `)
)

// skips are the rows of a table, one for each test and reason.
func (r row) skips() (out []string) {
	for _, res := range r.results {
		for _, line := range res.skips {
			if m := skipLine.FindStringSubmatch(line); m != nil {
				text := fmt.Sprintf("| `%s` | %s |\n", m[1], position.ReplaceAllString(m[2], ""))
				if !slices.Contains(out, text) {
					out = append(out, text)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func said(ctx context.Context, name string, args ...string) string {
	out, _ := exec.CommandContext(ctx, name, args...).Output()
	return strings.TrimSpace(string(out))
}

var model = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

// processor is the name of the processor, where the system says it.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	if m := model.FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return runtime.GOARCH
}
