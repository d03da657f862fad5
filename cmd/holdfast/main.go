// Command holdfast is for people who operate limits in Redis.
//
//	holdfast check                            what in this Redis will hurt, in words
//	holdfast inspect KEY                      what is stored for a key
//	holdfast reset KEY                        forgets what was counted for a key, and its block
//	holdfast block KEY 1h                     denies a key for a time
//	holdfast unblock KEY                      ends a block, and keeps what was counted
//	holdfast limits [set NAME TEXT | rm NAME] the tables of named limits
//	holdfast top                              the keys that the fleet denies most
//	holdfast fleet                            the processes that share the limits
//	holdfast bench                            what this Redis can do for you
//
// Redis is that of REDIS_URL, or of -url. docs/command.md describes it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // errors are printed once, by this program
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := program{env: os.Getenv, out: os.Stdout, errs: os.Stderr, terminal: isTerminal(os.Stdout)}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// isTerminal reports whether a person reads f as it is written.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
