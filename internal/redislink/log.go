package redislink

import (
	"context"
	"log/slog"
	"sync"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
)

// events logs what happens on a link, and calls its owner's functions.
type events struct {
	logger   *slog.Logger
	prefix   string
	policy   fallback.Policy
	onCall   func(context.Context, Call)           // nil without
	onChange func(context.Context, breaker.Change) // nil without

	denied, evalOnly, guessed sync.Once
}

// changed reports a change of a breaker's state. An outage is one line when it begins and
// one when it is over; the probes in between are for debugging.
func (e *events) changed(ctx context.Context, ch breaker.Change) {
	args := []any{"breaker", ch.Name, "from", ch.From, "to", ch.To, "since", ch.Since}
	switch {
	case ch.To == breaker.Closed:
		e.logger.Info("holdfast: redis circuit closed", append(args, "outage", ch.At.Sub(ch.Since))...)
	case ch.From == breaker.Closed:
		e.logger.Warn("holdfast: redis circuit opened; falling back", append(args, "cause", ch.Cause, "policy", e.policy, "open_for", ch.OpenFor)...)
	default:
		e.logger.Debug("holdfast: redis circuit half-open", append(args, "cause", ch.Cause, "open_for", ch.OpenFor)...)
	}
	if e.onChange != nil {
		e.onChange(ctx, ch)
	}
}

// called reports a call that has ended. The first call that the ACL rejects is logged.
func (e *events) called(c Call) {
	if e.onCall != nil {
		e.onCall(context.Background(), c)
	}
	if c.Class == breaker.ClassPermission {
		e.denied.Do(func() {
			e.logger.Error("holdfast: redis denies permission; falling back", "prefix", e.prefix, "policy", e.policy, "error", c.Err)
		})
	}
}

// noFunctions logs once that functions were given up.
func (e *events) noFunctions(why error) {
	e.evalOnly.Do(func() {
		e.logger.Warn("holdfast: functions cannot be used; using EVALSHA", "prefix", e.prefix, "error", why)
	})
}

// assumed logs once that a limit is shared by a number that is assumed.
func (e *events) assumed(processes int64) {
	e.guessed.Do(func() {
		e.logger.Warn("holdfast: it is not known yet how many processes there are; assuming a number", "prefix", e.prefix, "processes", processes)
	})
}
