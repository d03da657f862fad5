// Command servers tests the library on servers other than the one that is installed: those
// of servers.txt, by the tests of suites.txt.
//
//	servers [-newest] [-update] [-cost] [-cache folder] [-out file] [-skips file] [-tally file] [name ...]
//	servers -fetch name ...
//
// Without names it tests all servers, and with -newest those that every push is tested on, by
// fewer tests. Each is a package of Debian, which is unpacked in the cache and run from there
// by the loader of its own suite: nothing is installed. With -fetch it only prints where the
// servers are, for HOLDFAST_REDIS_SERVER.
//
// -out writes the tables of docs/servers.md, with -cost also that of what a decision costs. The
// file that -skips names has the tests that skip on every server, and with -newest also
// servers that may be missing: any other one that cannot be had fails the run. With -tally,
// numbers of tests are added to a file.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/scripts/internal/events"
)

var (
	//go:embed servers.txt
	serversText string
	//go:embed suites.txt
	suitesText string
)

// server is one line of servers.txt.
type server struct {
	name, debian, pkg string
	newest            bool
}

// suite is one line of suites.txt: tests of one package.
type suite struct {
	name, dir, pattern string
	newest             bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

type options struct {
	newest, update, fetch, cost bool
	cache, out, skips, tally    string
	names                       []string
}

func run(ctx context.Context) error {
	var o options
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	flag.BoolVar(&o.newest, "newest", false, "only the newest servers, by fewer tests")
	flag.BoolVar(&o.update, "update", false, "fetch servers again that are in the cache")
	flag.BoolVar(&o.fetch, "fetch", false, "only print where the servers are")
	flag.BoolVar(&o.cost, "cost", false, "measure what a decision costs each server, on a machine that does nothing else")
	flag.StringVar(&o.cache, "cache", filepath.Join(base, "holdfast-servers"), "folder of the servers")
	flag.StringVar(&o.out, "out", "", "file to write the table to")
	flag.StringVar(&o.skips, "skips", "", "file with the tests and servers that may skip")
	flag.StringVar(&o.tally, "tally", "", "file to add the numbers of tests to")
	flag.Parse()
	o.names = flag.Args()
	may, err := events.ReadSkips(o.skips)
	if err != nil {
		return err
	}
	servers, err := chosen(parseServers(serversText), o)
	if err != nil {
		return err
	}
	if o.fetch {
		for _, s := range servers {
			path, err := fetch(ctx, o.cache, s, o.update)
			if err != nil {
				return err
			}
			fmt.Println(path)
		}
		return nil
	}
	suites := parseSuites(suitesText)
	if o.newest {
		suites = slices.DeleteFunc(suites, func(s suite) bool { return !s.newest })
	}
	return test(ctx, o, may, servers, suites)
}

// test runs the suites on each server.
func test(ctx context.Context, o options, may []*regexp.Regexp, servers []server, suites []suite) error {
	bin, err := os.MkdirTemp("", "holdfast-servers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	if err := compile(ctx, bin, suites); err != nil {
		return err
	}
	var rows []row
	var errs []error
	for _, s := range servers {
		if err := ctx.Err(); err != nil {
			return err // stopped by the user
		}
		r := row{server: s}
		path, err := fetch(ctx, o.cache, s, o.update)
		if err == nil {
			r.version, err = version(ctx, path)
		}
		if err != nil {
			r.missing = err.Error()
			id := "servers." + s.name
			fmt.Printf("skipped: %s: %s\n", id, r.missing)
			if !o.newest || !slices.ContainsFunc(may, func(re *regexp.Regexp) bool { return re.MatchString(id) }) {
				errs = append(errs, fmt.Errorf("%s cannot be had: %w", s.name, err))
			}
			rows = append(rows, r)
			continue
		}
		fmt.Println("==", r.version)
		r.results = runAll(ctx, bin, path, may, suites)
		for _, res := range r.results {
			if res.err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", r.version, res.suite.name, res.err))
			}
		}
		if o.cost {
			if r.cost, err = cost(ctx, bin, path); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", r.version, err))
			}
		}
		passed, failed, skipped := r.sum("")
		fmt.Printf("%s: %d passed, %d failed, %d skipped\n", r.version, passed, failed, skipped)
		rows = append(rows, r)
	}
	if o.tally != "" {
		var passed, failed, skipped int
		for _, r := range rows {
			p, f, s := r.sum("")
			passed, failed, skipped = passed+p, failed+f, skipped+s
		}
		errs = append(errs, events.AddTally(o.tally, passed, failed, skipped))
	}
	if o.out != "" && errors.Join(errs...) == nil {
		errs = append(errs, os.WriteFile(o.out, []byte(page(ctx, rows, suites)), 0o600))
	}
	return errors.Join(errs...)
}

// chosen are the servers that the options name.
func chosen(all []server, o options) ([]server, error) {
	for _, name := range o.names {
		if !slices.ContainsFunc(all, func(s server) bool { return s.name == name }) {
			return nil, fmt.Errorf("there is no server %q in servers.txt", name)
		}
	}
	return slices.DeleteFunc(all, func(s server) bool {
		return o.newest && !s.newest || len(o.names) > 0 && !slices.Contains(o.names, s.name)
	}), nil
}

// fields returns the words of each line that is no comment.
func fields(text string) (out [][]string) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(f[0], "#") {
			out = append(out, f)
		}
	}
	return out
}

func parseServers(text string) (out []server) {
	for _, f := range fields(text) {
		out = append(out, server{name: f[0], debian: f[1], pkg: f[2], newest: slices.Contains(f[3:], "newest")})
	}
	return out
}

func parseSuites(text string) (out []suite) {
	for _, f := range fields(text) {
		out = append(out, suite{name: f[0], dir: f[1], pattern: f[2], newest: slices.Contains(f[3:], "newest")})
	}
	return out
}
