package limiter

// Options makes one option of several, for tests.
func Options(opts ...Option) Option {
	return limiterOption(func(c *config) error {
		return apply(opts, func(o Option) error { return o.forLimiter(c) })
	})
}
