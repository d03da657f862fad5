package main

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// The bounds of what can be set on the page: what a drawing can show, and windows that
// end while one watches.
const (
	maxUnits   = 50
	maxSeconds = 30
)

// settings are the numbers of a limit: Limit units per so many Seconds, and for those
// that are no windows Burst at once.
type settings struct {
	Limit   int `json:"limit"`
	Seconds int `json:"seconds"`
	Burst   int `json:"burst,omitempty"`
}

func (s settings) rate() limiter.Rate {
	return limiter.Per(s.Limit, time.Duration(s.Seconds)*time.Second)
}

func (s settings) window() time.Duration { return time.Duration(s.Seconds) * time.Second }

// algorithm is one card.
type algorithm struct {
	Slug  string `json:"slug"`
	Name  string `json:"name"`
	About string `json:"about"`
	// Window says that it counts in windows, and has no burst of its own.
	Window bool `json:"window"`
	// Func is the constructor of its limit in package limiter.
	Func string `json:"func"`
	make func(settings) limiter.Limit
}

// start is the limit that a card begins with.
func (a algorithm) start() settings {
	if a.Window {
		return settings{Limit: 10, Seconds: 3}
	}
	return settings{Limit: 2, Seconds: 1, Burst: 10}
}

var algorithms = []algorithm{
	{
		"fixed-window", "Fixed window", "Counts from border to border. Twice the limit fits around one.", true, "FixedWindow",
		func(s settings) limiter.Limit { return limiter.FixedWindow(s.rate()) },
	},
	{
		"sliding-log", "Sliding window log", "Remembers each request for as long as a window. Exact.", true, "SlidingWindowLog",
		func(s settings) limiter.Limit { return limiter.SlidingWindowLog(s.rate()) },
	},
	{
		"sliding-counter", "Sliding window counter", "Two counts; the former window weighs by what still covers it.", true, "SlidingWindowCounter",
		func(s settings) limiter.Limit { return limiter.SlidingWindowCounter(s.rate()) },
	},
	{
		"token-bucket", "Token bucket", "Tokens come back steadily. A request takes one.", false, "TokenBucket",
		func(s settings) limiter.Limit { return limiter.TokenBucket(s.rate(), s.Burst) },
	},
	{
		"leaky-policing", "Leaky bucket, policing", "Requests fill it, and it drains. What does not fit is denied.", false, "LeakyBucket",
		func(s settings) limiter.Limit { return limiter.LeakyBucket(s.rate(), s.Burst) },
	},
	{
		"leaky-shaping", "Leaky bucket, shaping", "A queue: what fits is admitted, each with a time to start.", false, "LeakyBucketShaping",
		func(s settings) limiter.Limit { return limiter.LeakyBucketShaping(s.rate(), s.Burst) },
	},
	{
		"gcra", "GCRA", "One time per key: how far ahead of the pace it has run.", false, "GCRA",
		func(s settings) limiter.Limit { return limiter.GCRA(s.rate(), s.Burst) },
	},
}

// slugs are the names by which algorithms are asked for.
func slugs() string {
	var all []string
	for _, a := range algorithms {
		all = append(all, a.Slug)
	}
	return strings.Join(all, ", ")
}
