// Package redislink is the only way to Redis: decisions, peeks, heartbeats, give-backs,
// reconciliation, permits and reports all pass its queues. There is one queue per server,
// with a circuit breaker, a bound on calls in flight, and a note on whether the server
// accepts keys of several hash slots in one command.
//
// An [Op] is one request. Requests that arrive while calls are in flight leave together
// in the next call: decisions that can share a script share a command, and commands share
// a write. A caller waits within its budget and then leaves; the call continues until the
// client returns from it.
package redislink
