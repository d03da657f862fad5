//go:build !linux

package faultproxy

import "time"

// nap sleeps for d.
func nap(d time.Duration) { time.Sleep(d) }
