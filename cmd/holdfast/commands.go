package main

import (
	"context"
	"flag"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/limiter"
)

// commands are all of them, in the order of the help.
func commands() []command {
	return []command{
		{
			name: "check", help: "what in this Redis will hurt, in words",
			run: (*program).check, text: text((*program).printCheck),
		},
		{
			name: "inspect", args: "KEY", help: "what is stored for a key", least: 1, most: 1,
			flags: func(s *flag.FlagSet, f *flags) { withLimit(s, f); withShards(s, f) },
			run:   (*program).inspect, text: text((*program).printKey),
		},
		{
			name: "reset", args: "KEY", help: "forgets what was counted for a key, and its block", least: 1, most: 1,
			flags: func(s *flag.FlagSet, f *flags) {
				s.BoolVar(&f.permits, "permits", false, "also the permits of a semaphore that are held, and the queue for them")
			},
			run: (*program).reset, text: text((*program).printChange),
		},
		{
			name: "block", args: "KEY DURATION", help: "denies a key for a time, as 90s, 1h or 36h", least: 2, most: 2,
			flags: func(s *flag.FlagSet, f *flags) {
				s.StringVar(&f.algorithm, "algorithm", "", "of the limiter, as \"token bucket\"; without it where the key has a state, else all seven")
				withShards(s, f)
			},
			run: (*program).block, text: text((*program).printChange),
		},
		{
			name: "unblock", args: "KEY", help: "ends a block, and keeps what was counted", least: 1, most: 1,
			run: (*program).unblock, text: text((*program).printChange),
		},
		{
			name: "limits", args: "[set NAME TEXT | rm NAME]", help: "the tables of named limits, which fleets obey", most: 3,
			flags: func(s *flag.FlagSet, f *flags) {
				s.StringVar(&f.table, "table", "", "the table; set and rm need it, and without it all are shown")
			},
			run: (*program).limits, text: text((*program).printTables),
		},
		{
			name: "top", args: "[KEY...]", help: "the keys that the fleet denies most; live in a terminal", most: -1,
			flags: func(s *flag.FlagSet, f *flags) {
				s.IntVar(&f.n, "n", 20, "how many keys of each limiter")
				s.BoolVar(&f.once, "once", false, "print once, also in a terminal")
				s.DurationVar(&f.every, "every", 2*time.Second, "how often the live view is renewed")
			},
			run: (*program).top, text: text((*program).printTop),
		},
		{
			name: "fleet", help: "the processes that share the limits, their breakers and debts",
			run: (*program).fleet, text: text((*program).printFleet),
		},
		{
			name: "bench", help: "what this Redis can do for you: decisions per second, and how long one takes",
			flags: func(s *flag.FlagSet, f *flags) {
				s.DurationVar(&f.each, "for", time.Second, "how long each line is measured")
				s.IntVar(&f.n, "callers", 64, "how many callers ask at once")
			},
			run: (*program).bench, text: text((*program).printBench),
		},
	}
}

// text makes a function that prints a result of one type.
func text[T any](print func(*program, T)) func(*program, any) {
	return func(p *program, result any) { print(p, result.(T)) }
}

func withLimit(s *flag.FlagSet, f *flags) {
	s.StringVar(&f.limit, "limit", "", "the limit, as \"gcra 100/s burst 20\", to say what remains: of windows and logs Redis does not know it")
}

func withShards(s *flag.FlagSet, f *flags) {
	s.IntVar(&f.shards, "shards", 0, "the number of WithKeyShards, if the limiter has it")
}

func (p *program) check(ctx context.Context, _ []string) (any, error) {
	c, err := p.op.Check(ctx)
	if err != nil {
		return nil, err
	}
	if w := c.Worst(); w == operator.Failing || w == operator.Risk {
		p.code = exitFound
	}
	return c, nil
}

func (p *program) inspect(ctx context.Context, args []string) (any, error) {
	q := operator.Question{Shards: p.shards}
	if p.limit != "" {
		var err error
		if q.Limit, err = limiter.ParseLimit(p.limit); err != nil {
			return nil, usageError{err}
		}
	}
	k, err := p.op.Inspect(ctx, args[0], q)
	if err != nil {
		return nil, err
	}
	if k.Empty() {
		p.code = exitFound
	}
	return k, nil
}

func (p *program) reset(ctx context.Context, args []string) (any, error) {
	return p.changed(p.op.Reset(ctx, args[0], p.permits))
}

func (p *program) block(ctx context.Context, args []string) (any, error) {
	d, err := time.ParseDuration(args[1])
	if err != nil {
		return nil, usage("the time %q is none: write it as 90s, 10m or 1h30m", args[1])
	}
	return p.changed(p.op.Block(ctx, args[0], d, operator.BlockIn{Algorithm: p.algorithm, Shards: p.shards}))
}

func (p *program) unblock(ctx context.Context, args []string) (any, error) {
	return p.changed(p.op.Unblock(ctx, args[0]))
}

// changed sets the exit code of a change: there was something to change, or not.
func (p *program) changed(c *operator.Change, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if len(c.Redis) == 0 {
		p.code = exitFound
	}
	return c, nil
}

func (p *program) limits(ctx context.Context, args []string) (any, error) {
	var l limiter.Limit
	switch {
	case len(args) == 0:
		return p.tables(ctx)
	case args[0] == "set" && len(args) == 3:
		var err error
		if l, err = limiter.ParseLimit(args[2]); err != nil {
			return nil, usageError{err}
		}
	case args[0] == "rm" && len(args) == 2:
	default:
		return nil, usage("limits takes set NAME TEXT, rm NAME, or nothing")
	}
	if p.table == "" {
		return nil, usage("say which table by -table NAME: it is the one that the program gives to limits.New")
	}
	if args[0] == "rm" {
		tables, err := p.op.Tables(ctx, p.table)
		if err != nil || !slices.ContainsFunc(tables, func(t operator.Table) bool { return t.Has(args[1]) }) {
			p.code = exitFound // nothing to change
			return tables, err
		}
	}
	if _, err := p.op.SetLimit(ctx, p.table, args[1], l); err != nil {
		return nil, err
	}
	return p.tables(ctx)
}

// tables are all tables of limits, or the one of the flag.
func (p *program) tables(ctx context.Context) (any, error) { return p.op.Tables(ctx, p.table) }

func (p *program) fleet(ctx context.Context, _ []string) (any, error) {
	f, err := p.op.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	if len(f.Processes) == 0 && f.Sampled == 0 {
		p.code = exitFound
	}
	return f, nil
}

// top shows the most denied keys: again and again in a terminal.
func (p *program) top(ctx context.Context, keys []string) (any, error) {
	secret := []byte(p.env("HOLDFAST_KEY_SECRET"))
	if p.every < 100*time.Millisecond {
		return nil, usage("-every is %v: must be at least 100ms", p.every)
	}
	if p.n < 0 {
		return nil, usage("-n is %d: must not be negative", p.n)
	}
	live := p.terminal && !p.once && !p.json
	for {
		t, err := p.op.Top(ctx, p.n, secret, keys...)
		switch {
		case ctx.Err() != nil && live:
			return nil, nil
		case err != nil && !live:
			return nil, err
		case !live:
			if len(t.Limiters) == 0 {
				p.code = exitFound
			}
			return t, nil
		}
		p.printf("\x1b[H\x1b[2J") // the upper left corner of an empty screen
		if err != nil {
			p.printf("%s %s\n", p.paint(red, "redis does not answer:"), safe(err.Error()))
		} else {
			p.printTop(t)
		}
		p.printf("\n%s\n", p.paint(dim, "Ctrl-C ends; renewed every "+p.every.String()))
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(p.every):
		}
	}
}

func (p *program) bench(ctx context.Context, _ []string) (any, error) {
	switch {
	case p.n < 1:
		return nil, usage("-callers is %d: must be at least 1", p.n)
	case p.each < 10*time.Millisecond:
		return nil, usage("-for is %v: must be at least 10ms", p.each)
	}
	return p.op.Bench(ctx, p.each, p.n)
}
