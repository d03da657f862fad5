// Package analytics says which keys a limiter denies most, in bounded memory.
//
//	top, err := analytics.New(100)
//	...
//	lim, err := limiter.New(rdb, limit, limiter.WithHooks(top.Hooks()))
//	...
//	mux.Handle("/debug/limits", top)
//
// A [Top] is for one limiter, in this process: a Limiter, a Local, a
// sampled.Limiter or a semaphore.Semaphore.
// [Top.Report] reads it, and as an http.Handler it answers in JSON; [Handler] does for
// several.
//
// Denials are counted by the Space-Saving algorithm (Metwally, Agrawal, El Abbadi,
// "Efficient computation of frequent and top-k elements in data streams", ICDT 2005):
// exactly, while there are no more keys than capacity, and with a known error beyond
// that. A key that is never denied costs nothing but a look. Reports are about the
// current and the previous period, of 10 minutes each unless set otherwise by
// [WithPeriod].
//
// Keys may be personal data, such as addresses: see [WithHashedKeys], and put the
// handlers behind your own authentication.
package analytics
