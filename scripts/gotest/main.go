// Command gotest runs go test with the arguments that it is given, and prints what go test
// prints without -v. Where HOLDFAST_NO_SKIPS is 1, a test that skips fails the run, unless
// a line of the file that -skips names says why it may.
//
//	gotest [-skips file] [-tally file] -- arguments of go test
//
// With -tally, numbers of tests that passed, failed and skipped are added to the file.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

func main() {
	skips := flag.String("skips", "", "file with the tests that may skip")
	tally := flag.String("tally", "", "file to add the numbers of tests to")
	flag.Parse()
	os.Exit(run(*skips, *tally, os.Getenv("HOLDFAST_NO_SKIPS") == "1", flag.Args()))
}

func run(skips, tally string, strict bool, args []string) int {
	may, err := readSkips(skips)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		return 2
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		return 2
	}
	r := newReport(os.Stdout, may)
	readErr := r.read(out)
	status := 0
	if err := cmd.Wait(); err != nil {
		status = max(cmd.ProcessState.ExitCode(), 1)
	}
	if readErr != nil {
		fmt.Fprintln(os.Stderr, "gotest:", readErr)
		status = max(status, 2)
	}
	for _, line := range r.skips {
		fmt.Println(line)
		if strict {
			status = max(status, 1)
		}
	}
	if tally != "" {
		if err := appendTo(tally, fmt.Sprintln(r.passed, r.failed, r.skipped)); err != nil {
			fmt.Fprintln(os.Stderr, "gotest:", err)
			status = max(status, 2)
		}
	}
	return status
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// readSkips reads lines of a regular expression, for the package's path, a point and the
// test's name, and of the reason. Lines that begin with # are comments.
func readSkips(name string) ([]*regexp.Regexp, error) {
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

type report struct {
	to                      io.Writer
	may                     []*regexp.Regexp
	output                  map[string][]string // of tests that run, by package and name
	failures                map[string]bool     // packages in which a test failed
	lines                   map[string][]string // of packages that run
	skips                   []string            // that may not be, with what they said
	passed, failed, skipped int
}

func newReport(to io.Writer, may []*regexp.Regexp) *report {
	return &report{to: to, may: may, output: map[string][]string{}, failures: map[string]bool{}, lines: map[string][]string{}}
}

func (r *report) read(from io.Reader) error {
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

func (r *report) event(e event) {
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
		r.passed++
		delete(r.output, id)
	case e.Action == "skip":
		r.skipped++
		if !slices.ContainsFunc(r.may, func(re *regexp.Regexp) bool { return re.MatchString(id) }) {
			r.skips = append(r.skips, "skipped: "+id+": "+reason(r.output[id]))
		}
		delete(r.output, id)
	case e.Action == "fail":
		r.failed++
		r.failures[e.Package] = true
		r.print(r.output[id])
		delete(r.output, id)
	}
}

// packageEnds prints what the package says of itself, and where it failed without a test
// that did, such as by a panic or by a timeout, what its tests said until then.
func (r *report) packageEnds(e event) {
	switch e.Action {
	case "pass", "fail", "skip":
	default:
		return
	}
	if e.Action == "fail" {
		if !r.failures[e.Package] {
			r.failed++
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

func (r *report) print(lines []string) {
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
