package limiter

// Options makes one option of several, for tests.
func Options(opts ...Option) Option {
	return option(func(c *config) error {
		for _, o := range opts {
			if err := o.forLimiter(c); err != nil {
				return err
			}
		}
		return nil
	})
}
