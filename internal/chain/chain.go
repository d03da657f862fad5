// Package chain joins two hooks into one, and calls hooks in order.
package chain

// Two returns a function that calls f and then g, of which either may be nil.
func Two[T, U any](f, g func(T, U)) func(T, U) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(v T, u U) {
		f(v, u)
		g(v, u)
	}
}
