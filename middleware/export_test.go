package middleware

import "net/http"

// Remembered returns how many limits a handler of this package remembers.
func Remembered(h http.Handler) (n int) {
	h.(*handler).policies.of.Range(func(any, any) bool { n++; return true })
	return n
}
