package main

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

const (
	// minLead is how long before a window's end the first half of a boundary burst is
	// sent: enough for all to be decided, little of any window.
	minLead = 250 * time.Millisecond
	// boundaryTries bounds how often a burst that shows nothing, because the machine
	// stood still, is tried at the next border, each time with four times the lead.
	boundaryTries = 4
)

// boundaryBurst is what was sent around the border of two windows, and admitted.
type boundaryBurst struct {
	Algorithm string  `json:"algorithm"`
	Limit     int     `json:"limit"`
	Sent      int     `json:"sent"` // in each half
	Before    int     `json:"before"`
	After     int     `json:"after"`
	Admitted  int     `json:"admitted"`
	SpanMs    float64 `json:"spanMs"` // from the first request to the last answer
	// OnTime says that the border was between the halves.
	OnTime bool `json:"onTime"`
	// Alike says that all were decided by Redis, or all without it. What each admits
	// adds up where one takes over from the other.
	Alike bool `json:"alike"`
}

// border is when a boundary burst will take place.
type border struct {
	Algorithm string  `json:"algorithm"`
	At        float64 `json:"at"` // Unix time in milliseconds
}

// burstAtBorder sends as much as the limit holds just before a window ends, and as
// much again right after, from a fresh state. Those that are no windows see the same
// load at the same time.
func (c *card) burstAtBorder(ctx context.Context) (boundaryBurst, error) {
	var b boundaryBurst
	for i := range boundaryTries {
		// Without Redis, the process forgets, and that is who decides then.
		_ = c.reset(ctx)
		var err error
		if b, err = c.tryBorder(ctx, min(minLead<<(2*i), c.settings().window()/2)); err != nil || b.OnTime && b.Alike {
			return b, err
		}
	}
	return b, nil
}

func (c *card) tryBorder(ctx context.Context, lead time.Duration) (boundaryBurst, error) {
	s := c.settings()
	b := boundaryBurst{Algorithm: c.Slug, Limit: c.capacity(), Sent: max(10, c.capacity())}
	window := s.window()
	ahead, unsure := c.clock(ctx)
	edge := nextBorder(time.Now().Add(lead+unsure+50*time.Millisecond), window, ahead)
	c.hub.publish("boundary", border{c.Slug, unixMs(edge)})
	if err := sleepUntil(ctx, edge.Add(-lead-unsure)); err != nil {
		return b, err
	}
	start := time.Now()
	before, err := c.burst(ctx, b.Sent)
	if err != nil {
		return b, err
	}
	b.OnTime = time.Now().Before(edge)
	if err := sleepUntil(ctx, edge.Add(unsure+2*time.Millisecond)); err != nil {
		return b, err
	}
	after, err := c.burst(ctx, b.Sent)
	if err != nil {
		return b, err
	}
	b.SpanMs = ms(time.Since(start))
	b.OnTime = b.OnTime && time.Since(edge) < window
	b.Alike = alike(append(before, after...))
	b.Before, b.After = admitted(before), admitted(after)
	b.Admitted = b.Before + b.After
	return b, nil
}

// nextBorder is when the window ends that t is in, by a clock that is ahead of ours.
// Windows begin at the epoch.
func nextBorder(t time.Time, window, ahead time.Duration) time.Time {
	there := t.Add(ahead).UnixMicro()
	return t.Add(time.Duration(window.Microseconds()-there%window.Microseconds()) * time.Microsecond)
}

// clock is how far the clock of Redis, by which windows end, is ahead of ours, and by
// how much that may be wrong; 0 when it does not say.
func (c *card) clock(ctx context.Context) (ahead, unsure time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	type reading struct{ ahead, unsure time.Duration }
	answered := make(chan reading, 1)
	c.tasks.Go(func() {
		// Of several, the one that took the shortest time says most.
		best := reading{unsure: time.Hour}
		for range 5 {
			start := time.Now()
			there, err := c.rdb.Time(ctx).Result()
			if err != nil {
				return
			}
			if half := time.Since(start) / 2; half < best.unsure {
				best = reading{there.Sub(start) - half, half}
			}
		}
		answered <- best
	})
	select {
	case r := <-answered:
		return r.ahead, r.unsure
	case <-ctx.Done():
		return 0, 0
	}
}

func sleepUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func alike(ds []decision) bool {
	own := 0
	for _, d := range ds {
		if d.Source == limiter.SourceLocal.String() {
			own++
		}
	}
	return own == 0 || own == len(ds)
}

func admitted(ds []decision) int {
	n := 0
	for _, d := range ds {
		if d.Allowed {
			n++
		}
	}
	return n
}
