package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// costs are the benchmarks of internal/lua that measure what a decision costs a server, by its
// own count of the time in EVALSHA, with the heads of their columns.
var costs = []struct{ name, head string }{
	{"gcra/1", "GCRA"},
	{"gcra/64", "GCRA, of 64 in a call"},
	{"fw/1", "fixed window"},
	{"fw/64", "fixed window, of 64 in a call"},
}

var costLine = regexp.MustCompile(`^BenchmarkScript/(\w+/\d+)(?:-\d+)?\s.*?([0-9.]+) redis-µs/decision`)

// cost returns the µs of one decision by the name of the benchmark.
func cost(ctx context.Context, bin, path string) (map[string]string, error) {
	const dir = "internal/lua"
	var names []string
	for _, c := range costs {
		names = append(names, c.name)
	}
	cmd := exec.CommandContext(ctx, binary(bin, dir), "-test.run=^$", "-test.benchtime=20x", "-test.bench=^BenchmarkScript$/^(fw|gcra)$/^(1|64)$")
	cmd.Dir = filepath.Join("..", dir)
	cmd.Env = append(os.Environ(), "HOLDFAST_REDIS_SERVER="+path, "HOLDFAST_REQUIRE_REDIS=1")
	said, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("the benchmark of the scripts: %w: %s", err, said)
	}
	found := map[string]string{}
	for in := bufio.NewScanner(bytes.NewReader(said)); in.Scan(); {
		if m := costLine.FindStringSubmatch(in.Text()); m != nil {
			found[m[1]] = m[2]
		}
	}
	for _, name := range names {
		if found[name] == "" {
			return nil, fmt.Errorf("the benchmark of the scripts says nothing of %s: %s", name, said)
		}
	}
	return found, nil
}

// costTable is the part of the page with what decisions cost.
func costTable(rows []row) string {
	var b strings.Builder
	b.WriteString("\n## Cost\n\nTime of the server for one decision in µs, by its own count (INFO commandstats); the lower\nquartile of 20 rounds of 500 calls:\n\n| server |")
	for _, c := range costs {
		fmt.Fprintf(&b, " %s |", c.head)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(costs)) + "\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s |", r.version)
		for _, c := range costs {
			fmt.Fprintf(&b, " %s |", r.cost[c.name])
		}
		b.WriteString("\n")
	}
	return b.String()
}
