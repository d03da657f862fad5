package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/scripts/internal/events"
)

const module = "github.com/holdfast-go/holdfast"

// row is what one server did.
type row struct {
	server  server
	version string
	missing string // why the server cannot be had
	results []result
	cost    map[string]string // µs of a decision
}

// result is what one suite did on one server. skips are the tests that skip because of the
// server: not those that skip on every server.
type result struct {
	suite          suite
	passed, failed int
	skips          []string
	err            error
}

// sum adds up the results of a suite, or of all where it has no name.
func (r row) sum(suite string) (passed, failed, skipped int) {
	for _, res := range r.results {
		if suite == "" || suite == res.suite.name {
			passed, failed, skipped = passed+res.passed, failed+res.failed, skipped+len(res.skips)
		}
	}
	if r.missing != "" {
		skipped++
	}
	return passed, failed, skipped
}

// compile builds the tests of each package once: they are the same for every server.
func compile(ctx context.Context, bin string, suites []suite) error {
	done := map[string]bool{}
	for _, s := range suites {
		if done[s.dir] {
			continue
		}
		done[s.dir] = true
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary(bin, s.dir), ".")
		cmd.Dir = filepath.Join("..", s.dir)
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", s.dir, err, said)
		}
	}
	return nil
}

func binary(bin, dir string) string {
	return filepath.Join(bin, strings.ReplaceAll(dir, "/", "_")+".test")
}

// runAll runs the suites on a server, two at a time: their tests wait more than they compute.
func runAll(ctx context.Context, bin, path string, may []*regexp.Regexp, suites []suite) []result {
	results := make([]result, len(suites))
	var wg sync.WaitGroup
	turns := make(chan struct{}, 2)
	for i, s := range suites {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			results[i] = runSuite(ctx, bin, path, may, s)
		})
	}
	wg.Wait()
	return results
}

// runSuite runs the tests of a suite, and reads their events by what reads those of go test.
func runSuite(ctx context.Context, bin, path string, may []*regexp.Regexp, s suite) result {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-p", module+"/"+s.dir, binary(bin, s.dir),
		"-test.v=test2json", "-test.timeout=5m", "-test.run="+s.pattern)
	cmd.Dir = filepath.Join("..", s.dir)
	cmd.Env = append(os.Environ(), "HOLDFAST_REDIS_SERVER="+path, "HOLDFAST_REQUIRE_REDIS=1")
	var said strings.Builder
	r := events.New(&said, may)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return result{suite: s, failed: 1, err: err}
	}
	err = errors.Join(r.Read(out), cmd.Wait())
	res := result{suite: s, passed: r.Passed, failed: r.Failed, skips: r.Skips}
	switch {
	case err != nil || r.Failed > 0:
		res.err = errors.Join(err, errors.New("tests failed"))
		res.failed = max(res.failed, 1)
		fmt.Printf("%s on %s:\n%s", s.name, path, said.String())
	case r.Passed+r.Skipped == 0:
		res.failed, res.err = 1, fmt.Errorf("no test of %s matches %s", s.dir, s.pattern)
	}
	return res
}
