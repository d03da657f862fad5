package redislink

import (
	"math"
	"sync/atomic"
)

// PerShare holds what shares leave of a limit, for those used lately. It is safe for concurrent
// use, and the zero value is ready for it.
type PerShare[T any] struct{ cells [8]atomic.Pointer[scaled[T]] }

type scaled[T any] struct {
	share float64
	value T
}

// Get returns what is left of the limit, which scale makes of a share that is new here.
func (p *PerShare[T]) Get(share float64, scale func(share float64) T) T {
	at := &p.cells[math.Float64bits(share)*0x9e3779b97f4a7c15>>61]
	s := at.Load()
	if s == nil || s.share != share {
		s = &scaled[T]{share, scale(share)}
		at.Store(s)
	}
	return s.value
}
