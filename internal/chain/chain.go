// Package chain joins two hooks into one, and calls hooks in order.
package chain

// One returns a function that calls f and then g, of which either may be nil.
func One[T any](f, g func(T)) func(T) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(v T) {
		f(v)
		g(v)
	}
}

// Two is One for functions of two parameters.
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
