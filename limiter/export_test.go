package limiter

import "github.com/holdfast-go/holdfast/internal/options"

// Options makes one option of several, for tests.
func Options(opts ...Option) RedisOption {
	return option(func(c *config) error {
		return options.Apply(c, opts)
	})
}

// WithMaxInFlight bounds how many calls to Redis may be without an answer at once.
func WithMaxInFlight(n int) RedisOption {
	return option(func(c *config) error {
		c.Link.MaxInFlight = n
		return nil
	})
}

// Validate returns what constructors return for a limit that breaks a rule.
func (l Limit) Validate() error {
	_, err := l.params()
	return err
}
