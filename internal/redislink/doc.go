// Package redislink is the one way to Redis: decisions, peeks, heartbeats, give-backs,
// reconciliation, permits and reports all pass its queues. There is one per server, with
// a circuit breaker, a bound on calls in flight, and what the server has taught about
// the keys that it takes in one command.
//
// An [Op] is one request. Those that arrive while calls are in flight leave together in
// the next one: decisions that can share a script share a command, and commands share a
// write. A caller waits within its budget and then leaves; the call goes on until the
// client lets go of it.
package redislink
