package admission

import (
	"context"
	"log/slog"
	"strings"

	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/retry"
)

// maxHosts bounds the hosts that are remembered, at about 2 kB each.
const maxHosts = 4096

// Host is what is kept for each server. Its fields do not change.
type Host struct {
	Name     string
	Throttle *retry.Throttle // nil is none
	Budget   *retry.Budget
}

// hosts is the bounded map of them. The overflow, which hosts get for which there is no
// room, has no throttle: the failures of one must not condemn another. It is safe for
// concurrent use. Make it with newHosts.
type hosts struct {
	t        *Table[Host]
	throttle *retry.ThrottleSettings // nil is no throttle
	shared   *retry.Budget           // nil is one for each host
	overflow *Host
}

// newHosts returns an empty map of max hosts. throttle is that of each, nil is none; shared
// is the budget of all, nil is one for each. That a host begins or ends to be throttled is
// logged, and then reported to changed and to the OnChange of throttle.
func newHosts(max int, throttle *retry.ThrottleSettings, shared *retry.Budget, logger *slog.Logger, changed func(context.Context, retry.ThrottleChange)) (*hosts, error) {
	hs := &hosts{shared: shared}
	if throttle != nil {
		s := *throttle // its owner may use it again
		if _, err := retry.NewThrottle(s); err != nil {
			return nil, err
		}
		s.OnChange = chain.Two(chain.Two(logThrottle(logger), changed), s.OnChange)
		hs.throttle = &s
	}
	hs.t = NewTable(max, func(h *Host) bool {
		return h.Throttle != nil && h.Throttle.Rejecting()
	})
	hs.overflow = &Host{Name: "overflow", Budget: hs.newBudget()}
	return hs, nil
}

// get returns the host of a name.
func (hs *hosts) get(name string) *Host {
	if h := hs.t.Get(name); h != nil {
		return h
	}
	name = strings.Clone(name) // it may be a part of a long URL
	if h := hs.t.GetOrAdd(name, func() *Host { return hs.make(name) }); h != nil {
		return h
	}
	return hs.overflow
}

func (hs *hosts) make(name string) *Host {
	h := &Host{Name: name, Budget: hs.newBudget()}
	if hs.throttle != nil {
		s := *hs.throttle
		s.Name = name
		h.Throttle, _ = retry.NewThrottle(s) // newHosts has made one of these settings
	}
	return h
}

func (hs *hosts) newBudget() *retry.Budget {
	if hs.shared != nil {
		return hs.shared
	}
	b, _ := retry.NewBudget(retry.BudgetSettings{}) // the defaults are valid
	return b
}

// logThrottle writes that a host fails, or no longer does: an outage is one line of log when
// it begins and one when it is over.
func logThrottle(logger *slog.Logger) func(context.Context, retry.ThrottleChange) {
	return func(ctx context.Context, c retry.ThrottleChange) {
		if c.Throttling {
			logger.WarnContext(ctx, "holdfast: host fails; throttled", "host", c.Name, "since", c.Since, "requests", c.Requests, "accepts", c.Accepts)
		} else {
			logger.InfoContext(ctx, "holdfast: host recovered; not throttled any more", "host", c.Name, "since", c.Since, "outage", c.At.Sub(c.Since))
		}
	}
}
