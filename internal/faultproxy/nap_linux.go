package faultproxy

import (
	"syscall"
	"time"
)

// nap sleeps for d, to some 0.1 ms.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // one that is interrupted is too short, and repeated
}
