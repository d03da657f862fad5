// Package events reads what go test -json says, and the list of tests that may skip.
package events

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// AddTally adds a line of numbers to a file: tests that passed, failed and skipped.
func AddTally(name string, passed, failed, skipped int) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, passed, failed, skipped)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// ReadSkips reads lines of a regular expression, for the package's path, a point and the
// test's name, and of the reason. Lines that begin with # are comments.
func ReadSkips(name string) ([]*regexp.Regexp, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseSkips(string(text))
}

func parseSkips(text string) (out []*regexp.Regexp, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		expr, reason, _ := strings.Cut(line, " ")
		if strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%q has no reason", line)
		}
		re, err := regexp.Compile("^(?:" + expr + ")$")
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		out = append(out, re)
	}
	return out, nil
}

// event is one of go test -json; see go doc test2json.
type event struct {
	Action, Package, Test, Output, ImportPath string
}

// Report reads what go test -json says, and counts. Make it with [New].
type Report struct {
	// Passed, Failed and Skipped are how many tests did. A package that fails without a test
	// that did is one that failed.
	Passed, Failed, Skipped int
	// Skips are the tests that skipped and may not, with what they said, a line each.
	Skips []string

	to       io.Writer
	may      []*regexp.Regexp
	output   map[string][]string // of tests that run, by package and name
	failures map[string]bool     // packages in which a test failed
	lines    map[string][]string // of packages that run
}

// New returns a report that prints to a writer what go test prints without -v. Tests that an
// expression of may matches may skip.
func New(to io.Writer, may []*regexp.Regexp) *Report {
	return &Report{to: to, may: may, output: map[string][]string{}, failures: map[string]bool{}, lines: map[string][]string{}}
}

// Read reads events until they end.
func (r *Report) Read(from io.Reader) error {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(r.to, "%s", line) // go test itself, which has no events for some of its errors
			} else {
				r.event(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *Report) event(e event) {
	id := e.Package + "." + e.Test
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.to, e.Output)
	case e.Action == "output" && e.Test == "":
		r.lines[e.Package] = append(r.lines[e.Package], e.Output)
	case e.Action == "output":
		r.output[id] = append(r.output[id], e.Output)
	case e.Test == "":
		r.packageEnds(e)
	case e.Action == "pass":
		r.Passed++
		delete(r.output, id)
	case e.Action == "skip":
		r.Skipped++
		if !slices.ContainsFunc(r.may, func(re *regexp.Regexp) bool { return re.MatchString(id) }) {
			r.Skips = append(r.Skips, "skipped: "+id+": "+reason(r.output[id]))
		}
		delete(r.output, id)
	case e.Action == "fail":
		r.Failed++
		r.failures[e.Package] = true
		r.print(r.output[id])
		delete(r.output, id)
	}
}

// packageEnds prints what the package says of itself, and where it failed without a test
// that did, such as by a panic or by a timeout, what its tests said until then.
func (r *Report) packageEnds(e event) {
	switch e.Action {
	case "pass", "fail", "skip":
	default:
		return
	}
	if e.Action == "fail" {
		if !r.failures[e.Package] {
			r.Failed++
		}
		for id, lines := range r.output {
			if strings.HasPrefix(id, e.Package+".") {
				r.print(lines)
				delete(r.output, id)
			}
		}
	}
	for _, line := range r.lines[e.Package] {
		if e.Action == "fail" || line != "PASS\n" {
			fmt.Fprint(r.to, line)
		}
	}
	delete(r.lines, e.Package)
}

func (r *Report) print(lines []string) {
	for _, line := range lines {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(r.to, line)
		}
	}
}

// reason is what a test said when it skipped: its last line that go test did not write.
func reason(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			return line
		}
	}
	return "without a reason"
}
