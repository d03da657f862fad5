package limiter

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/inprocess"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// receipt says where the units of one decision were taken. A nil one records nothing.
type receipt struct {
	s   *spec
	key string // of the part, where it is split

	redis  lua.Taken // Units is 0 where Redis was not asked
	leased lease.Units
	local  inprocess.Receipt

	end time.Time // of the decision's budget, where units go back before it is over
}

// budget is the time in which units can be given back.
func (rc *receipt) budget(of time.Duration) time.Duration {
	if rc.end.IsZero() {
		return of
	}
	return min(of, time.Until(rc.end))
}

// of notes which key the decision is about; of a split one, which part.
func (rc *receipt) of(s *spec, key string) {
	if rc != nil {
		rc.s, rc.key = s, key
	}
}

// forLocal is where the local store notes what it admits.
func (rc *receipt) forLocal() *inprocess.Receipt {
	if rc == nil {
		return nil
	}
	return &rc.local
}

// fromRedis notes that Redis has charged n units at a time.
func (rc *receipt) fromRedis(keys lua.Keys, n int, at int64) {
	if rc != nil {
		rc.redis = lua.Taken{Keys: keys, Params: rc.s.args, Units: int64(n), Of: int64(n), At: at}
	}
}

// fromLease notes what a lease has spent.
func (rc *receipt) fromLease(units lease.Units) {
	if rc != nil {
		rc.leased = units
	}
}
