package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/analytics"
	"github.com/holdfast-go/holdfast/internal/operator"
)

// The colours, as terminals name them.
const (
	red    = "31"
	yellow = "33"
	green  = "32"
	dim    = "2"
	bold   = "1"
)

// paint colours text in a terminal.
func (p *program) paint(color, text string) string {
	if p.color == "never" || p.color == "auto" && (!p.terminal || p.env("NO_COLOR") != "") {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (p *program) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }

// short says a time as a person needs it: with three digits.
func short(d operator.Duration) string {
	t := time.Duration(d)
	for _, unit := range []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond} {
		if t >= unit {
			return t.Round(unit / 100).String()
		}
	}
	return t.Round(time.Microsecond).String()
}

func (p *program) printCheck(c *operator.Checked) {
	for _, s := range c.Servers {
		p.printf("%s  Redis %s, %s, round trip %s (slowest of 30 %s)\n", p.paint(bold, safe(s.Addr)),
			safe(cmp.Or(s.Version, "of an unknown version")), safe(cmp.Or(s.Role, "of an unknown role")), short(s.P50), short(s.P99))
	}
	color := map[operator.Level]string{operator.Failing: red, operator.Risk: yellow, operator.Note: dim}
	for _, f := range c.Findings {
		where := ""
		if len(c.Servers) > 1 {
			where = " at " + safe(f.Server)
		}
		p.printf("\n%s %s%s\n", p.paint(color[f.Level], fmt.Sprintf("%-7s", f.Level)), safe(f.What), where)
		p.printf("        so: %s\n        do: %s\n", f.Effect, f.Do)
	}
	switch c.Worst() {
	case "", operator.Note:
		p.printf("\n%s\n", p.paint(green, "nothing to mend was found"))
	}
}

func (p *program) printKey(k *operator.Key) {
	p.printf("%s  prefix %s\n", p.paint(bold, safe(k.Key)), k.Prefix)
	if k.Empty() {
		p.printf("nothing is stored: the key was not used lately, is fully reset, or has another prefix\n")
		return
	}
	for _, s := range k.Limits {
		p.printState(s)
	}
	if h := k.Permits; h != nil {
		p.printf("\npermits\n  held        %d, the last one until in %s\n  waiting     %d\n  stored      %s, for %s\n", h.Held, short(h.LastEnd), h.Waiting, safe(h.Redis), short(h.Expires))
	}
	if k.SampledRate > 0 {
		p.printf("\nsampled\n  demand      is counted for a sampled limiter\n")
	}
	if k.Learnt {
		p.printf("\nlearnt\n  quotas      of this key were learnt from answers of a server\n")
	}
}

func (p *program) printState(s operator.State) {
	title := s.Algorithm
	if s.Part != nil {
		title += fmt.Sprintf(", part %d", *s.Part)
	}
	p.printf("\n%s\n", p.paint(bold, title))
	if s.Broken != "" {
		p.printf("  %s      %s\n", p.paint(red, "broken"), safe(s.Broken))
		return
	}
	switch {
	case s.Limit != "":
		p.printf("  limit       %s\n", s.Limit)
	case s.Rate != "":
		p.printf("  rate        %s; -limit TEXT shows what remains\n", s.Rate)
	default:
		p.printf("  limit       is not in Redis; -limit TEXT shows what remains\n")
	}
	p.printf("  used        %d", s.Used)
	if s.Remaining != nil {
		p.printf(", %d remain", *s.Remaining)
	}
	p.printf("\n")
	if s.BlockedFor > 0 {
		p.printf("  %s     for %s\n", p.paint(red, "blocked"), short(s.BlockedFor))
	}
	if s.RetryAfter != nil && *s.RetryAfter > 0 {
		p.printf("  next unit   in %s\n", short(*s.RetryAfter))
	}
	p.printf("  reset       in %s\n", short(s.ResetAfter))
	if s.Since != nil {
		p.printf("  used since  %s\n", s.Since.Format(time.RFC3339))
	}
	expires := "for " + short(s.Expires)
	if s.Expires == 0 {
		expires = p.paint(yellow, "without a time to live: the next charge sets one")
	}
	p.printf("  stored      %s, %s\n", safe(s.Redis), expires)
}

func (p *program) printChange(c *operator.Change) {
	if len(c.Redis) == 0 {
		p.printf("nothing to change: no state is stored for %s under the prefix %s\n", safe(c.Key), c.Prefix)
		return
	}
	if c.Until != nil {
		p.printf("%s is blocked until %s\n", p.paint(bold, safe(c.Key)), c.Until.Format(time.RFC3339))
	}
	p.printf("changed %s\n", strings.Join(quoted(c.Redis), " "))
	if c.Note != "" {
		p.printf("%s\n", p.paint(dim, "note: "+c.Note))
	}
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = safe(name)
	}
	return out
}

func (p *program) printTables(tables []operator.Table) {
	if len(tables) == 0 {
		p.printf("there is no table of limits under this prefix\n")
	}
	for i, t := range tables {
		if i > 0 {
			p.printf("\n")
		}
		p.printf("%s  version %d\n", p.paint(bold, safe(t.Name)), t.Version)
		if len(t.Limits)+len(t.Rejected) == 0 {
			p.printf("  is empty: each program uses its own limits\n")
		}
		for _, name := range slices.Sorted(maps.Keys(t.Limits)) {
			p.printf("  %-20s %v\n", safe(name), t.Limits[name])
		}
		for _, name := range slices.Sorted(maps.Keys(t.Rejected)) {
			p.printf("  %-20s %s %s\n", safe(name), p.paint(red, "is not obeyed:"), safe(t.Rejected[name]))
		}
	}
}

func (p *program) printFleet(f *operator.Fleet) {
	if len(f.Processes) == 0 {
		p.printf("no process sent a heartbeat under the prefix %s within a minute: none decided anything, all have closed, or have a fixed share (WithShare)\n", f.Prefix)
	} else {
		p.printf("%d under the prefix %s; the share of each is %.3g\n\n", len(f.Processes), f.Prefix, f.Share)
		p.printf("  %-20s %-16s %s\n", "process", "heartbeat", "where")
	}
	published := false
	for _, one := range f.Processes {
		seen := short(one.Seen) + " ago"
		color := ""
		switch {
		case !one.Beats:
			seen, color = "none", yellow
		case time.Duration(one.Seen) > 10*time.Second:
			seen, color = short(one.Seen)+" idle?", yellow
		}
		if seen = fmt.Sprintf("%-16s", seen); color != "" {
			seen = p.paint(color, seen)
		}
		where := ""
		if r := one.Published; r != nil {
			where = fmt.Sprintf("%s, pid %d, %s, since %s; said %s ago:", safe(r.Host), r.PID, safe(r.Program), r.Started.Format(time.DateTime), short(operator.Duration(max(0, f.At.Sub(r.At)))))
			published = true
		}
		p.printf("  %-20s %s %s\n", safe(one.Name), seen, where)
		p.printLimiters(one.Published)
	}
	for _, r := range f.Returns {
		p.printf("\n%s after an outage (%s): %d are back, %d are not\n", p.paint(yellow, "a return"), safe(r.Limiter), r.Back, r.Away)
	}
	if f.Sampled > 0 {
		p.printf("\nsampled limiters have %s\n", processes(f.Sampled))
	}
	if f.Unreadable > 0 {
		p.printf("\nthis version cannot read what is published by %s\n", processes(int64(f.Unreadable)))
	}
	if !published && len(f.Processes) > 0 {
		p.printf("\n%s\n", p.paint(dim, "breakers, limits and debts are shown of programs that call analytics.Publish"))
	}
}

// printLimiters prints what a process publishes of its limiters.
func (p *program) printLimiters(r *analytics.ProcessReport) {
	if r == nil {
		return
	}
	for _, l := range r.Limiters {
		p.printf("    %-18s %s", safe(l.Name), safe(l.Limit))
		s := l.State
		if s == nil {
			p.printf("\n")
			continue
		}
		var sources []string
		for _, name := range slices.Sorted(maps.Keys(s.Decisions)) {
			sources = append(sources, fmt.Sprintf("%d %s", s.Decisions[name], safe(name)))
		}
		p.printf("; decisions: %s\n", strings.Join(sources, ", "))
		for _, srv := range s.Servers {
			if srv.State != "closed" {
				p.printf("    %-18s %s\n", "", p.paint(red, fmt.Sprintf("the breaker of %s is %s (%s) since %s", safe(srv.Name), safe(srv.State), safe(srv.LastFailure), srv.Since.Format(time.TimeOnly))))
			}
		}
		if s.Owed > 0 {
			p.printf("    %-18s %s\n", "", p.paint(yellow, fmt.Sprintf("local use of %d keys is not charged in Redis yet", s.Owed)))
		}
	}
}

func (p *program) printTop(t *operator.Top) {
	if len(t.Limiters) == 0 {
		p.printf("no process publishes its denials under the prefix %s: see analytics.Publish\n", t.Prefix)
		return
	}
	for i, name := range slices.Sorted(maps.Keys(t.Limiters)) {
		r := t.Limiters[name]
		if i > 0 {
			p.printf("\n")
		}
		p.printf("%s  %d denied since %s, in %s\n", p.paint(bold, safe(name)), r.Denied, r.Since.Format(time.DateTime), processes(int64(t.Processes)))
		if len(r.Keys) == 0 {
			continue
		}
		p.printf("  %12s %10s %12s  %-12s %s\n", "denied", "or less by", "allowed", "last", "key")
		for _, k := range r.Keys {
			p.printf("  %12d %10d %12d  %-12s %s\n", k.Denied, k.Error, k.Allowed, short(operator.Duration(max(0, t.At.Sub(k.LastDenied))))+" ago", safe(k.Key))
		}
	}
}

func (p *program) printBench(b *operator.Bench) {
	p.printf("%s  round trip %s (slowest of 30 %s)\n\n", p.paint(bold, b.Server), short(b.RoundTrip), short(b.Slowest))
	p.printf("  %-24s %8s %14s %10s %10s %10s %14s\n", "algorithm", "callers", "decisions/s", "p50", "p99", "late", "CPU of Redis")
	for _, row := range b.Rows {
		cpu := ""
		if row.CPU > 0 {
			cpu = short(row.CPU)
		}
		p.printf("  %-24s %8d %14.0f %10s %10s %9.2f%% %14s\n", row.Algorithm, row.Callers, row.PerSecond, short(row.P50), short(row.P99), 100*row.Late, cpu)
	}
	p.printf("\nlate are decisions that Redis did not make within the budget of 50ms; CPU is for one decision.\n%s\n", b.Advice)
}

func processes(n int64) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
