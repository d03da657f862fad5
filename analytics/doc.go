// Package analytics finds the keys that a limiter denies most, in bounded memory.
//
//	top, err := analytics.New(100)
//	...
//	lim, err := limiter.New(rdb, limit, limiter.WithHooks(top.Hooks()))
//	...
//	mux.Handle("/debug/limits", top)
//
// A [Top] is for one limiter, in this process: a limiter.Limiter, a
// sampled.Limiter or a semaphore.Semaphore. [Top.Report] reads it. It is also an
// http.Handler that answers in JSON; [Handler] does so for several.
//
// Denials are counted by the Space-Saving algorithm (Metwally, Agrawal, El Abbadi,
// "Efficient computation of frequent and top-k elements in data streams", ICDT 2005):
// exactly while there are no more keys than capacity, and with a known error beyond
// that. A key that is never denied costs only a lookup. Reports cover the current and the
// previous period, of 10 minutes each unless [WithPeriod] sets another length.
//
// Keys may be personal data, such as addresses: see [WithHashedKeys], and put the
// handlers behind your own authentication.
package analytics
