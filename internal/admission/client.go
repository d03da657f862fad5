// Package admission decides when a call may leave: what package httpclient and the client
// of gRPC share. A call waits for the cooldown of its key, the throttle of its host, the
// limiter and adaptive pacing, in this order, and again before another attempt; a wait
// that does not fit ends it. Errors, hooks and what a server's answer means are those of
// the two packages.
package admission

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/wait"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/retry"
)

// Settings are those of a Client. Make them with Defaults.
type Settings struct {
	Limiter  limiter.Allower // nil is none
	Attempts int             // in all
	Backoff  retry.Backoff
	MaxWait  time.Duration // of a single wait
	MaxTotal time.Duration // of the sum of a call's waits
	Adaptive bool
	Logger   *slog.Logger // nil is slog.Default

	Throttle   *retry.ThrottleSettings // of each host; nil is none
	OnThrottle func(context.Context, retry.ThrottleChange)
	Budget     *retry.Budget // of the retries to all hosts; nil is one for each
}

// Defaults returns the settings that hold unless others are given.
func Defaults() Settings {
	return Settings{Attempts: 3, MaxWait: 2 * time.Minute, MaxTotal: 5 * time.Minute, Throttle: new(retry.ThrottleSettings)}
}

func (s *Settings) validate() error {
	switch {
	case s.Limiter != nil && configerr.IsNil(s.Limiter):
		return configerr.New("limiter", "nil", "must not be a nil pointer")
	case s.Attempts < 1 || s.Attempts > 100: // what needs more needs a queue
		return configerr.New("attempts", s.Attempts, "must be from 1 to 100")
	case s.MaxWait < 0 || s.MaxWait > time.Hour:
		return configerr.New("max wait", s.MaxWait, "must be from 0 to 1h")
	case s.MaxTotal < 0 || s.MaxTotal > 24*time.Hour:
		return configerr.New("max total wait", s.MaxTotal, "must be from 0 to 24h")
	}
	return s.Backoff.Validate()
}

// Client is what the calls of one client share. It is safe for concurrent use. Make it
// with New.
type Client struct {
	s      Settings
	logger *slog.Logger
	hosts  *hosts
	gates  *Gates       // of keys
	scopes *Gates       // of parts of keys
	paces  *Table[pace] // nil is not adaptive
	block  blocker      // nil if the limiter can't
	lines  wait.Lines[lineOf]
	shapes atomic.Bool // the limiter has done so
}

// mayShape reports whether the limiter may answer with a Delay. Of a limiter of package limiter
// with another limit, only an answer shows that some keys have one that shapes: who asks before the first
// one may take a place for which it cannot wait.
func (c *Client) mayShape() bool {
	l, ok := c.s.Limiter.(*limiter.Limiter)
	return !ok || c.shapes.Load() || shaping(l.Limit())
}

func shaping(l limiter.Limit) bool { return l.Algorithm() == "leaky bucket shaping" }

// blocker is what limiters implement that can deny a key for the whole fleet.
type blocker interface {
	Block(ctx context.Context, key string, d time.Duration, limit ...limiter.Limit) error
}

// New returns a Client, or which of the settings breaks which rule.
func New(s Settings) (*Client, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	var err error
	c := &Client{s: s, logger: cmp.Or(s.Logger, slog.Default()), gates: newGates(maxGates), scopes: newGates(maxScopes)}
	if c.hosts, err = newHosts(maxHosts, s.Throttle, s.Budget, c.logger, s.OnThrottle); err != nil {
		return nil, err
	}
	if s.Adaptive {
		c.paces = newPaces(maxPaces)
	}
	c.block, _ = s.Limiter.(blocker)
	return c, nil
}
