package httpclient

import (
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/retry"
)

// maxHosts bounds the hosts that are remembered, at about 2 kB each.
const maxHosts = 4096

// host is what is kept for each host.
type host struct {
	name     string
	throttle *retry.Throttle // nil is none
	budget   *retry.Budget
	// family is that of its quotas, if it has named several; else nil.
	family atomic.Pointer[string]
}

// hosts is the bounded map of them. The overflow, which hosts get for which
// there is no room, has no throttle: the failures of one must not
// condemn another.
type hosts struct {
	t        *admission.Table[host]
	settings *retry.ThrottleSettings // nil is no throttle
	shared   *retry.Budget           // nil is one for each host
	overflow *host
}

func newHosts(max int, s *retry.ThrottleSettings, shared *retry.Budget) *hosts {
	hs := &hosts{settings: s, shared: shared}
	hs.t = admission.NewTable(max, func(h *host) bool {
		return h.throttle != nil && h.throttle.Rejecting()
	})
	hs.overflow = &host{name: "overflow", budget: hs.newBudget()}
	return hs
}

func (hs *hosts) get(name string) *host {
	if h := hs.t.Get(name); h != nil {
		return h
	}
	name = strings.Clone(name) // it may be a part of a long URL
	if h := hs.t.GetOrAdd(name, func() *host { return hs.make(name) }); h != nil {
		return h
	}
	return hs.overflow
}

func (hs *hosts) make(name string) *host {
	h := &host{name: name, budget: hs.newBudget()}
	if hs.settings != nil {
		s := *hs.settings
		s.Name = name
		// New has made one of these settings: they are valid.
		h.throttle, _ = retry.NewThrottle(s)
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

// hostOf returns the name of a URL's host: lower case, with the port unless it
// is the scheme's own.
func hostOf(u *url.URL) string {
	name := strings.ToLower(u.Host)
	switch u.Scheme {
	case "https":
		return strings.TrimSuffix(name, ":443")
	case "http":
		return strings.TrimSuffix(name, ":80")
	default:
		return name
	}
}
