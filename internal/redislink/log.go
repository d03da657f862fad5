package redislink

import "github.com/holdfast-go/holdfast/breaker"

// changed logs and reports a change of a breaker's state. An outage is one line when it
// begins and one when it is over; the probes in between are for debugging.
func (l *Link) changed(ch breaker.Change) {
	logger := l.cfg.Logger
	args := []any{"breaker", ch.Name, "from", ch.From, "to", ch.To, "since", ch.Since}
	switch {
	case ch.To == breaker.Closed:
		logger.Info("holdfast: Redis decides again", append(args, "outage", ch.At.Sub(ch.Since))...)
	case ch.From == breaker.Closed:
		logger.Warn("holdfast: Redis cannot decide; falling back", append(args, "cause", ch.Cause, "policy", l.cfg.Policy, "open_for", ch.OpenFor)...)
	default:
		logger.Debug("holdfast: asking Redis again", append(args, "cause", ch.Cause, "open_for", ch.OpenFor)...)
	}
	if l.cfg.OnChange != nil {
		l.cfg.OnChange(ch)
	}
}

// logPermission logs the first call that the ACL rejects.
func (l *Link) logPermission(err error) {
	logger := l.cfg.Logger
	l.denied.Do(func() {
		logger.Error("holdfast: Redis refuses the limiter's commands; falling back", "prefix", l.cfg.Prefix, "policy", l.cfg.Policy, "error", err)
	})
}

// logEval logs that functions were given up.
func (l *Link) logEval(why error) {
	logger := l.cfg.Logger
	l.evalOnly.Do(func() {
		logger.Warn("holdfast: functions cannot be used; using EVALSHA", "prefix", l.cfg.Prefix, "error", why)
	})
}
