// Package sim runs a fleet in virtual time: unmodified limiters, semaphores and go-redis
// clients in the processes, servers that execute the library's commands with the step
// functions of package algo, a network between them, and faults. One seed draws all of it,
// and a ledger that sees everything checks what the library promises.
//
// A World lives in a bubble of testing/synctest. It is not safe for use outside of it.
package sim
