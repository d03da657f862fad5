// Package sample is changed by the tests of the command.
package sample

import "time"

const unit = time.Second

// Wait is how long to wait after so many attempts.
func Wait(attempts int, most time.Duration) time.Duration {
	d := unit
	for range attempts {
		d *= 2
		if d > most || attempts < 0 {
			return most
		}
	}
	return d
}

// Unused is reached by no test.
func Unused(s []int) bool {
	return len(s) == 0
}
