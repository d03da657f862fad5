// Package middleware limits the requests that an http.Handler serves.
//
//	limit, err := middleware.New(lim, middleware.RemoteIP())
//	...
//	http.ListenAndServe(addr, limit(mux))
//
// It works with net/http, and with every router that takes a
// func(http.Handler) http.Handler. The ResponseWriter is passed on as it is, so that
// Hijacker, Flusher and http.ResponseController work as without it.
//
// Every response says what is left: RateLimit and RateLimit-Policy of the IETF
// draft (draft-ietf-httpapi-ratelimit-headers: lists of structured fields, RFC 9651, with
// the quota q, the window w, what remains r and the time until there is more t), and the
// older X-RateLimit-Limit, -Remaining and -Reset (seconds from now). Seconds are rounded
// up; a window below one second is left out. Numbers have at most 15 digits. A request
// beyond the limit gets 429 with Retry-After, in whole seconds, rounded up and at least 1,
// and a problem of RFC 9457.
//
// Middlewares around each other, per address and per user say, each add their policy to
// RateLimit; the older headers, which are about one limit, are those of the one that
// denied, or has less left. The same holds for an upstream that has limits of its own,
// behind [ReverseProxy].
//
// Any [limiter.Allower] decides: a Limiter, a Local, a Sampled or a Multi, whose parts
// become policies of their own.
package middleware
