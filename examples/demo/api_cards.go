package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/middleware"
)

// ask is one request to a card on its way through the middleware.
type ask struct {
	n       int
	start   time.Time
	decided *decision
	answer  any // instead of the decision
}

type askKey struct{}

func askedBy(r *http.Request) *ask {
	if a, ok := r.Context().Value(askKey{}).(*ask); ok {
		return a
	}
	return &ask{}
}

// serve asks the card's limit, through package middleware, which sets the headers; for
// a cost of 0 they are those of the last decision.
func (c *card) serve(w http.ResponseWriter, r *http.Request, n int, answer any) {
	a := &ask{n: n, start: time.Now(), answer: answer}
	c.limit(http.HandlerFunc(answered)).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), askKey{}, a)))
}

// answered is what the card's limit let through.
func answered(w http.ResponseWriter, r *http.Request) {
	a := askedBy(r)
	if a.answer == nil {
		a.answer = a.decided
	}
	writeJSON(w, a.answer)
}

// denied is the answer to what it did not.
func denied(w http.ResponseWriter, r *http.Request, d middleware.Decision) {
	p := &problem{Type: "about:blank", Title: http.StatusText(d.Status), Status: d.Status, Detail: "the limit could not be asked"}
	if d.Status == http.StatusTooManyRequests {
		p.Type = "https://iana.org/assignments/http-problem-types#quota-exceeded"
		p.Title = "Request cannot be satisfied as assigned quota has been exceeded"
		p.Detail = fmt.Sprintf("come back in %v", d.Result.RetryAfter.Round(time.Millisecond))
		p.Violated, p.Decision = []string{d.Policy}, askedBy(r).decided
	}
	p.write(w)
}

// find returns the card that is meant.
func (a *app) find(slug *string) (*card, error) {
	if slug == nil {
		return nil, badField("algorithm", "missing", "must be one of "+slugs())
	}
	for _, c := range a.cards {
		if c.Slug == *slug {
			return c, nil
		}
	}
	return nil, badField("algorithm", quoted(*slug), "must be one of "+slugs())
}

// counted reads which card is asked for how much: from 1 to most, or what stands for it.
func (a *app) counted(w http.ResponseWriter, r *http.Request, most func(*card) int, missing int) (c *card, n int, err error) {
	var in struct {
		Algorithm *string `json:"algorithm"`
		N         *int    `json:"n"`
	}
	if err := decode(w, r, &in); err != nil {
		return nil, 0, err
	}
	if c, err = a.find(in.Algorithm); err != nil {
		return nil, 0, err
	}
	n, err = within("n", in.N, 1, most(c), missing)
	return c, n, err
}

func (a *app) attempt(w http.ResponseWriter, r *http.Request) error {
	c, n, err := a.counted(w, r, (*card).capacity, 1)
	if err != nil {
		return err
	}
	c.serve(w, r, n, nil)
	return nil
}

func (a *app) burst(w http.ResponseWriter, r *http.Request) error {
	c, n, err := a.counted(w, r, func(*card) int { return maxUnits }, 10)
	if err != nil {
		return err
	}
	ds, err := c.burst(r.Context(), n)
	if err != nil {
		return err
	}
	yes := admitted(ds)
	c.serve(w, r, 0, map[string]any{"algorithm": c.Slug, "sent": n, "allowed": yes, "denied": n - yes, "decisions": ds})
	return nil
}

func (a *app) boundary(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Algorithm *string `json:"algorithm"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	c, err := a.find(in.Algorithm)
	if err != nil {
		return err
	}
	if !c.begin() {
		return broken(http.StatusConflict, "algorithm", quoted(c.Slug), "has a boundary burst under way; wait for its end")
	}
	defer c.end()
	// The page may be closed in the meantime, the program too.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()
	b, err := c.burstAtBorder(ctx)
	if err != nil {
		return err
	}
	c.serve(w, r, 0, b)
	return nil
}

func (a *app) changeLimit(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Algorithm *string `json:"algorithm"`
		Limit     *int    `json:"limit"`
		Seconds   *int    `json:"seconds"`
		Burst     *int    `json:"burst"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	c, err := a.find(in.Algorithm)
	if err != nil {
		return err
	}
	var s settings
	if s.Limit, err = within("limit", in.Limit, 1, maxUnits, 0); err != nil {
		return err
	}
	if s.Seconds, err = within("seconds", in.Seconds, 1, maxSeconds, 0); err != nil {
		return err
	}
	switch {
	case !c.Window:
		if s.Burst, err = within("burst", in.Burst, 1, maxUnits, 0); err != nil {
			return err
		}
	case in.Burst != nil:
		return badField("burst", *in.Burst, "must be left out: a window has none but its limit")
	}
	if err := c.change(s); err != nil {
		return err
	}
	writeJSON(w, c.state())
	return nil
}
