package limiter

import "github.com/holdfast-go/holdfast/internal/options"

// Options makes one option of several, for tests.
func Options(opts ...Option) RedisOption {
	return options.Set(func(c *config) { _ = options.Apply(c, opts) }, options.Apply(new(config), opts))
}

// WithMaxInFlight bounds how many calls to Redis may be without an answer at once.
func WithMaxInFlight(n int) RedisOption {
	return options.Set(func(c *config) { c.Link.MaxInFlight = n }, nil)
}

// Validate returns what constructors return for a limit that breaks a rule.
func (l Limit) Validate() error {
	_, err := l.params()
	return err
}

// KeptLimits counts the limits beside its own that a limiter keeps ready.
func KeptLimits(l *Limiter) (n int) {
	l.limits.others.Range(func(any, any) bool { n++; return true })
	return n
}
