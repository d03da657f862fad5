package limiter

import "github.com/holdfast-go/holdfast/internal/options"

// Options makes one option of several, for tests.
func Options(opts ...Option) RedisOption {
	return option(func(c *config) error {
		return options.Apply(c, opts)
	})
}
