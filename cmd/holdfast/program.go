package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/limiter"
)

// The exit codes.
const (
	exitDone    = 0 // it was done, and nothing is wrong
	exitFound   = 1 // check has found something to mend, or there is nothing stored
	exitUsage   = 2 // the command line is wrong
	exitFailure = 3 // Redis cannot be reached, or has rejected it
)

// program is one run. Its fields are what it needs of the system.
type program struct {
	env       func(string) string
	out, errs io.Writer
	terminal  bool // out is one

	flags
	rdb  redis.UniversalClient
	op   *operator.Operator
	code int // the exit code of a command that succeeds
}

// flags are those of all commands and of some.
type flags struct {
	address operator.Address
	prefix  string
	json    bool
	color   string

	limit, algorithm, table string
	shards, n               int
	permits, once           bool
	every, each             time.Duration
}

// command is a subcommand.
type command struct {
	name, args, help string
	least, most      int // arguments
	flags            func(*flag.FlagSet, *flags)
	run              func(*program, context.Context, []string) (any, error)
	// text prints what run has returned.
	text func(*program, any)
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func usage(text string, args ...any) error { return usageError{fmt.Errorf(text, args...)} }

// run runs the command line, and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	i := slices.IndexFunc(commands(), func(c command) bool { return c.name == name })
	switch {
	case name == "help" || name == "-h" || name == "-help" || name == "--help":
		p.help(p.out)
		return exitDone
	case i < 0:
		if name != "" {
			fmt.Fprintf(p.errs, "holdfast: there is no command %q\n", name)
		}
		p.help(p.errs)
		return exitUsage
	}
	c := commands()[i]
	set, rest, err := p.parse(c, args)
	if errors.Is(err, flag.ErrHelp) {
		p.describe(c, set, p.out)
		return exitDone
	}
	if err == nil && (len(rest) < c.least || c.most >= 0 && len(rest) > c.most) {
		err = usage("%d arguments, want %s", len(rest), cmp.Or(c.args, "none"))
	}
	if err == nil {
		var result any
		if result, err = p.connected(ctx, c, rest); err == nil {
			p.print(c, result)
			return p.code
		}
	}
	fmt.Fprintf(p.errs, "holdfast %s: %s\n", c.name, safe(err.Error()))
	if _, ok := errors.AsType[usageError](err); ok || errors.Is(err, operator.ErrBadRequest) || errors.Is(err, limiter.ErrInvalidConfig) {
		fmt.Fprintf(p.errs, "usage: holdfast %s %s\nholdfast %s -h has the flags\n", c.name, c.args, c.name)
		return exitUsage
	}
	return exitFailure
}

// connected runs a command with a connection.
func (p *program) connected(ctx context.Context, c command, args []string) (any, error) {
	var err error
	if p.rdb, err = p.address.Connect(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = p.rdb.Close() }()
	if p.op, err = operator.New(p.rdb, p.prefix); err != nil {
		return nil, usageError{err}
	}
	return c.run(p, ctx, args)
}

// parse reads flags and arguments in any order. What follows "--" is no flag.
func (p *program) parse(c command, args []string) (set *flag.FlagSet, rest []string, err error) {
	set = flag.NewFlagSet(c.name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	a := &p.address
	// REDIS_URL is no default of the flag, because help prints those, and a password may be in it.
	set.StringVar(&a.URL, "url", "", "where Redis is: redis://, rediss://, redis+cluster://, redis+sentinel:// (REDIS_URL, else redis://localhost:6379)")
	set.StringVar(&a.User, "user", p.env("REDIS_USER"), "ACL user, where the URL has none (REDIS_USER); its password is REDIS_PASSWORD")
	set.BoolVar(&a.Cluster, "cluster", false, "the URL is that of a node of a cluster; found out where possible")
	set.StringVar(&a.CA, "ca", "", "file with the certificates to trust, for TLS")
	set.StringVar(&a.Cert, "cert", "", "file with the client's certificate")
	set.StringVar(&a.Key, "key", "", "file with the client's key")
	set.DurationVar(&a.Timeout, "timeout", 5*time.Second, "for each call")
	set.StringVar(&p.prefix, "prefix", cmp.Or(p.env("HOLDFAST_PREFIX"), redislink.DefaultPrefix), "that of the limiters (HOLDFAST_PREFIX)")
	set.BoolVar(&p.json, "json", false, "print JSON")
	set.StringVar(&p.color, "color", "auto", "auto, always or never; NO_COLOR is never")
	a.Password = p.env("REDIS_PASSWORD")
	if c.flags != nil {
		c.flags(set, &p.flags)
	}
	var last []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, last = args[:i], args[i+1:]
	}
	for {
		if err := set.Parse(args); err != nil {
			if !errors.Is(err, flag.ErrHelp) {
				err = usageError{err}
			}
			return set, nil, err
		}
		if set.NArg() == 0 {
			break
		}
		rest, args = append(rest, set.Arg(0)), set.Args()[1:]
	}
	a.URL = cmp.Or(a.URL, p.env("REDIS_URL"))
	switch {
	case !slices.Contains([]string{"auto", "always", "never"}, p.color):
		return set, nil, usage("-color is %q: must be auto, always or never", p.color)
	case a.Timeout <= 0:
		return set, nil, usage("-timeout is %v: must be above 0", a.Timeout)
	case p.shards < 0 || p.shards > 64:
		return set, nil, usage("-shards is %d: must be 0 to 64", p.shards)
	}
	return set, append(rest, last...), nil
}

// print prints what a command has found, for a program or a person.
func (p *program) print(c command, result any) {
	if result == nil {
		return
	}
	if !p.json {
		c.text(p, result)
		return
	}
	enc := json.NewEncoder(p.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(result); err != nil {
		fmt.Fprintln(p.errs, "holdfast:", err)
	}
}

// help lists the commands.
func (p *program) help(w io.Writer) {
	fmt.Fprintln(w, "holdfast shows and changes the limits in a Redis (REDIS_URL, or -url).")
	fmt.Fprintln(w)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-42s %s\n", strings.TrimSpace("holdfast "+c.name+" "+c.args), c.help)
	}
	fmt.Fprintln(w, "\nholdfast COMMAND -h has the flags, which stand behind the command; -json prints JSON. The exit")
	fmt.Fprintln(w, "code is 0 when all is well, 1 when something was found to mend or nothing is stored, 2 for a wrong")
	fmt.Fprintln(w, "command line, and 3 when Redis cannot be reached or rejects it.")
}

// describe prints the flags of a command.
func (p *program) describe(c command, set *flag.FlagSet, w io.Writer) {
	fmt.Fprintf(w, "usage: holdfast %s %s\n\n%s\n\n", c.name, c.args, c.help)
	set.SetOutput(w)
	set.PrintDefaults()
}
