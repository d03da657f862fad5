// Package middleware limits the requests that an http.Handler serves.
//
//	limit, err := middleware.New(lim, middleware.RemoteIP())
//	...
//	http.ListenAndServe(addr, limit(mux))
//
// It works with net/http, and with every router that takes a
// func(http.Handler) http.Handler. It passes the ResponseWriter on as it is, so that
// Hijacker, Flusher and http.ResponseController work as without the middleware.
//
// Every response says what is left, by RateLimit and RateLimit-Policy of the IETF draft
// (draft-ietf-httpapi-ratelimit-headers: lists of structured fields, RFC 9651, with the
// quota q, the window w, the remaining units r and the time t until the limit is fully reset,
// or, of a bucket with nothing left and of a request that is rejected, until there is more), and
// by the older X-RateLimit-Limit, -Remaining and -Reset (seconds from now). The names that
// the draft had before, RateLimit-Limit, -Remaining and -Reset, are sent with
// [RateLimitDraft6]. Seconds are rounded up; a window below one second is left out. Numbers have at most 15 digits. A
// request beyond the limit gets 429 with Retry-After, in whole seconds, rounded up and at
// least 1, also where a custom [limiter.Allower] names no time, and a problem document of RFC 9457.
//
// Nested middlewares, for example one per address and one per user, each add their policy
// to RateLimit. The older headers describe one limit: the one that denied, or the one with
// less left. The same holds for an upstream with limits of its own, behind [ReverseProxy].
//
// Any [limiter.Allower] can decide: a limiter.Limiter, a sampled.Limiter, or
// a limiter.Multi, whose parts become policies of their own.
package middleware
