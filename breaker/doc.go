// Package breaker decides when to stop sending calls to Redis.
//
// [Classify] turns any error of a Redis call into a [Class]: what caused it, and what the
// caller of the limiter receives. A [Breaker] counts those classes for one server (a
// standalone Redis, a cluster master, a ring node). When too many calls fail or are slow,
// it rejects further calls at the cost of one atomic load, so that decisions are made
// locally at once:
//
//	ticket, ok := b.Acquire()
//	if !ok {
//		return local()
//	}
//	start := time.Now()
//	err := callRedis(ctx)
//	ticket.Done(breaker.Classify(ctx, err), time.Since(start))
//
// The breaker opens for a jittered time that doubles while the server stays unavailable.
// After that time it lets one caller at a time through as a probe. The probe is a real
// call, because a PING also succeeds on a server that rejects writes.
//
// A Breaker runs no goroutine and no timer: calls of [Breaker.Acquire] and [Ticket.Done]
// make every transition, and there is nothing to close.
package breaker
