package lua

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// The commands one by one, for tests.

func (c *Client) one(ctx context.Context, cmd Command) error {
	var err [1]error
	c.Do(ctx, []Command{cmd}, err[:])
	return err[0]
}

func (c *Client) Decide(ctx context.Context, now int64, nonce any, items []Item, out []algo.Decision) (int64, []algo.Decision, error) {
	d := Decide{Now: now, Nonce: nonce, Items: items, Repeats: repeats(items)}
	err := c.one(ctx, &d)
	return d.At, append(out, d.Out...), err
}

func (c *Client) DecideAll(ctx context.Context, now int64, nonce any, items []Item) ([]algo.Decision, error) {
	d := DecideAll{Now: now, Nonce: nonce, Of: len(items), Items: items}
	err := c.one(ctx, &d)
	return d.Out, err
}

func (c *Client) GiveBack(ctx context.Context, now int64, nonce any, items []Taken) ([]int64, error) {
	if items[0].Params.Kind == algo.LeakyBucketShaping {
		return make([]int64, len(items)), nil // takes nothing back
	}
	g := GiveBack{Now: now, Nonce: nonce, Items: items}
	err := c.one(ctx, &g)
	return g.Given, err
}

func (c *Client) Block(ctx context.Context, now int64, k Keys, p Args, d int64) (int64, error) {
	b := Block{Now: now, Keys: k, Params: p, Time: d}
	err := c.one(ctx, &b)
	return b.Left, err
}

func (c *Client) Beat(ctx context.Context, now int64, key, id string, life int64) (int64, error) {
	b := Beat{Now: now, Key: key, Back: "back:{" + key + "}", ID: id, Life: life}
	err := c.one(ctx, &b)
	return b.Alive, err
}

func (c *Client) Acquire(ctx context.Context, now int64, nonce any, ask *PermitAsk) (PermitReply, error) {
	p := Permits{Now: now, Nonce: nonce, Items: []PermitItem{{Ask: ask}}}
	err := c.one(ctx, &p)
	return p.Items[0].Got, err
}

func (c *Client) KeepPermits(ctx context.Context, now, ttl int64, of []Holders) ([]bool, error) {
	k := KeepPermits{Now: now, TTL: ttl, Of: of}
	err := c.one(ctx, &k)
	return k.Lost, err
}

func (c *Client) LeavePermits(ctx context.Context, key string, callers ...string) error {
	return c.one(ctx, LeavePermits(key, callers...))
}

func (c *Client) Report(ctx context.Context, now int64, names *Namer, process, life int64, asked []Asked) (alive, dead int64, err error) {
	r := Report{Now: now, Names: names, Process: process, Life: life, Asked: asked}
	err = c.one(ctx, &r)
	return r.Alive, r.Dead, err
}

func (c *Client) Bury(ctx context.Context, now int64, names *Namer, process int64, leaves bool) (bool, error) {
	b := Bury{Now: now, Names: names, Process: process, Leaves: leaves}
	err := c.one(ctx, &b)
	return b.More, err
}

// One runs a command.
func (c *Client) One(ctx context.Context, cmd Command) error { return c.one(ctx, cmd) }

func repeats(items []Item) bool {
	seen := map[Keys]bool{}
	for i := range items {
		if seen[items[i].Keys] {
			return true
		}
		seen[items[i].Keys] = true
	}
	return false
}
