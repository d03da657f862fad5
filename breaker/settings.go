package breaker

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

// Settings configure a [Breaker]. The zero value is valid: a zero field takes
// its default. [New] copies the settings, later changes have no effect.
type Settings struct {
	// Name identifies the breaker in [Change]. It is not interpreted.
	Name string

	// Window is the rolling time over which results are counted, in ten
	// buckets: between 90 % and 100 % of it counts. Default 10 s; from
	// 10 ms to 24 h.
	Window time.Duration

	// MinRequests is how many results, neutral ones aside, the window must
	// hold before the breaker may open. Default 10.
	MinRequests uint32

	// FailureRatio is the share of failures among the results in the window,
	// neutral ones aside, at which the breaker opens. Default 0.5; in (0, 1].
	FailureRatio float64

	// ConsecutiveFailures is how many failures without a success between them open
	// the breaker, whatever the ratio: after a busy healthy time it would take
	// as many failures as there were successes in the window. Default 10.
	ConsecutiveFailures uint32

	// OpenMin and OpenMax bound the open time before jitter. It is OpenMin
	// first, doubles with each failed probe up to OpenMax, and returns to
	// OpenMin once the breaker has stayed closed for a Window, so that a
	// flapping Redis is asked ever more rarely. Each time is drawn uniformly
	// from the upper half, [d/2, d]: processes that saw the same outage do not
	// come back together, and none waits longer than OpenMax. Defaults 1 s and
	// 30 s; from 1 ms to 24 h.
	OpenMin, OpenMax time.Duration

	// ProbeTimeout is how long a probe may take. One that has not reported by
	// then counts as failed ([ClassSlow]), whatever it reports later. Default
	// 50 ms; from 1 ms to 24 h. It should not be shorter than a call may take.
	ProbeTimeout time.Duration

	// SlowCall is the time above which a success counts as a failure
	// ([ClassSlow]): a Redis that answers, but too late, opens the breaker by
	// the same FailureRatio, and a slow probe does not close it. 0, the
	// default, turns it off.
	SlowCall time.Duration

	// OnChange, if not nil, is called for every transition exactly once and in
	// order, with a context that never ends. It runs on the goroutine of the Acquire or Done that made the
	// change, or on one that is already delivering, but outside every lock: it
	// may call any method of the breaker and of its tickets. It should be
	// quick, that goroutine is serving a request. If it panics, the panic goes
	// to that goroutine, the breaker stays intact, and the ticket that Acquire
	// was about to return is lost, which ProbeTimeout covers.
	OnChange func(context.Context, Change)
}

const (
	buckets = 10

	minWindow = 10 * time.Millisecond // one bucket is not shorter than 1 ms
	minTime   = time.Millisecond
	// maxTime catches mistaken units and keeps every sum of times far from
	// overflow.
	maxTime = 24 * time.Hour
)

func (s Settings) withDefaults() Settings {
	s.Window = cmp.Or(s.Window, 10*time.Second)
	s.MinRequests = cmp.Or(s.MinRequests, 10)
	s.FailureRatio = cmp.Or(s.FailureRatio, 0.5)
	s.ConsecutiveFailures = cmp.Or(s.ConsecutiveFailures, 10)
	s.OpenMin = cmp.Or(s.OpenMin, time.Second)
	s.OpenMax = cmp.Or(s.OpenMax, 30*time.Second)
	s.ProbeTimeout = cmp.Or(s.ProbeTimeout, 50*time.Millisecond)
	return s
}

// validate checks settings that have their defaults.
func (s Settings) validate() error {
	for _, f := range []struct {
		name       string
		value, min time.Duration
	}{
		{"Window", s.Window, minWindow},
		{"OpenMin", s.OpenMin, minTime},
		{"OpenMax", s.OpenMax, minTime},
		{"ProbeTimeout", s.ProbeTimeout, minTime},
	} {
		if f.value < f.min || f.value > maxTime {
			return configerr.New(f.name, f.value, "must be from %v to %v", f.min, maxTime)
		}
	}
	if s.OpenMax < s.OpenMin {
		return configerr.New("OpenMax", s.OpenMax, "must not be less than OpenMin (%v)", s.OpenMin)
	}
	// Written so that NaN, which compares false with everything, fails it.
	if !(s.FailureRatio > 0 && s.FailureRatio <= 1) {
		return configerr.New("FailureRatio", s.FailureRatio, "must be greater than 0 and at most 1")
	}
	if s.SlowCall < 0 {
		return configerr.New("SlowCall", s.SlowCall, "must not be negative")
	}
	return nil
}
