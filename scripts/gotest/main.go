// Command gotest runs go test with the arguments that it is given, and prints what go test
// prints without -v. Where HOLDFAST_NO_SKIPS is 1, a test that skips fails the run, unless
// a line of the file that -skips names says why it may.
//
//	gotest [-skips file] [-tally file] -- arguments of go test
//
// With -tally, numbers of tests that passed, failed and skipped are added to the file.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"

	"github.com/holdfast-go/holdfast/scripts/internal/events"
)

func main() {
	skips := flag.String("skips", "", "file with the tests that may skip")
	tally := flag.String("tally", "", "file to add the numbers of tests to")
	flag.Parse()
	os.Exit(run(*skips, *tally, os.Getenv("HOLDFAST_NO_SKIPS") == "1", flag.Args()))
}

func run(skips, tally string, strict bool, args []string) int {
	may, err := events.ReadSkips(skips)
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
	r := events.New(os.Stdout, may)
	readErr := r.Read(out)
	status := 0
	if err := cmd.Wait(); err != nil {
		status = max(cmd.ProcessState.ExitCode(), 1)
	}
	if readErr != nil {
		fmt.Fprintln(os.Stderr, "gotest:", readErr)
		status = max(status, 2)
	}
	for _, line := range r.Skips {
		fmt.Println(line)
		if strict {
			status = max(status, 1)
		}
	}
	if tally != "" {
		if err := events.AddTally(tally, r.Passed, r.Failed, r.Skipped); err != nil {
			fmt.Fprintln(os.Stderr, "gotest:", err)
			status = max(status, 2)
		}
	}
	return status
}
