// Package mail has no code but tests: those of docs/testing.md.
package mail
