//go:build !race

package holdfast_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestScale: the costs in docs/scale.md are computed from the measurements of today. make scale writes
// them, and names the file by SCALE.
func TestScale(t *testing.T) {
	measured := read(t, "docs/redis.md")
	// perDecision is the server's CPU time in a row of a table of docs/redis.md.
	perDecision := func(title, row string) time.Duration {
		_, table, _ := strings.Cut(measured, "**"+title+"**\n\n")
		head, rows, _ := strings.Cut(table, "\n")
		_, line, ok := strings.Cut(rows, "\n| "+row+" |")
		line, _, _ = strings.Cut(line, "\n")
		cells := strings.Split(line, "|")
		for i, name := range strings.Split(head, "|") {
			if strings.TrimSpace(name) == "CPU server" && ok && i >= 2 && i-2 < len(cells) {
				d, err := time.ParseDuration(strings.TrimSpace(cells[i-2]))
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
		}
		t.Fatalf("docs/redis.md has no CPU time of %s, %s", title, row)
		return 0
	}
	alone := perDecision("1 caller", "Holdfast")
	columns := []struct {
		name string
		each time.Duration
	}{
		{"one caller in each process", alone}, {"64 callers", perDecision("64 callers", "Holdfast")},
		{"512 callers of one key", perDecision("512 callers, one key", "Holdfast")},
		{"leases, 512 callers", perDecision("512 callers", "Holdfast, leases")}, {"leases, of one key", perDecision("512 callers, one key", "Holdfast, leases")},
	}
	var b strings.Builder
	b.WriteString("| Redis cores, at decisions per second |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s (%v) |", c.name, c.each)
	}
	fmt.Fprintf(&b, " sampled, 100 processes (%v a report) | 1,000 | 2,500 and more |\n|%s\n", alone, strings.Repeat("---|", len(columns)+4))
	cores := func(perSecond float64, each time.Duration) {
		if perSecond*each.Seconds() < 0.001 {
			b.WriteString(" < 0.001 |")
			return
		}
		short, _ := strconv.ParseFloat(strconv.FormatFloat(perSecond*each.Seconds(), 'g', 2, 64), 64)
		fmt.Fprintf(&b, " %s |", strconv.FormatFloat(short, 'f', -1, 64))
	}
	for rate := 10; rate <= 10_000_000; rate *= 10 {
		fmt.Fprintf(&b, "| %d |", rate)
		for _, c := range columns {
			cores(float64(rate), c.each)
		}
		for _, reports := range []float64{100, 1000, 2500} {
			cores(reports, alone)
		}
		b.WriteString("\n")
	}
	if file := os.Getenv("SCALE"); file != "" {
		redistest.Section(t, file, "cores", b.String())
	} else if !strings.Contains(read(t, "docs/scale.md"), b.String()) {
		t.Error("the costs in docs/scale.md are not those of docs/redis.md: SCALE=$PWD/docs/scale.md go test -run 'TestScale$' . writes them")
	}
}
