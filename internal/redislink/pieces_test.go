package redislink

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestPiecesOfSets: of requests for several limits that were sent again in pieces each gets what became of its own
// limits, and only a piece without decisions is an error of all that were in it.
func TestPiecesOfSets(t *testing.T) {
	names, args := lua.NewNamer("p"), lua.NewArgs(algo.Params{Kind: algo.GCRA, Num: 1, Den: 1, Cap: 1})
	c := &command{what: sets}
	for _, id := range []string{"a", "b", "c"} {
		o := &Op{ID: id}
		for range 2 {
			o.All = append(o.All, lua.Item{Keys: names.KeysOf(algo.GCRA, id), Params: args, Cost: 1})
		}
		c.add(o)
	}
	c.apart, c.all.Out = make([]outcome, 3), make([]algo.Decision, 6)
	at := []int{0, 2}
	p := c.piece(at, "nonce").(*lua.DecideAll)
	for i := range p.Items {
		if want := c.id(at[i/2]); p.Items[i].Keys.ID() != want {
			t.Errorf("item %d is of %s, want %s", i, p.Items[i].Keys.ID(), want)
		}
		p.Items[i].At = int64(i + 1)
		p.Out = append(p.Out, algo.Decision{Remaining: int64(i + 1)})
	}
	broken := &lua.ReplyError{What: "of one of them"}
	c.put(at, p, broken)
	for i, want := range []int64{1, 2, 0, 0, 3, 4} {
		if got := c.all.Items[i].At; got != want {
			t.Errorf("item %d was decided at %d, want %d", i, got, want)
		}
		if got := c.all.Out[i].Remaining; got != want {
			t.Errorf("of item %d remain %d, want %d", i, got, want)
		}
	}
	for _, k := range at {
		if c.apart[k] != (outcome{}) {
			t.Errorf("request %d was decided, and has %v", k, c.apart[k])
		}
	}
	c.put([]int{1}, c.piece([]int{1}, "nonce"), broken)
	if c.apart[1].err != error(broken) {
		t.Errorf("request 1 was not decided, and has %v", c.apart[1])
	}
}
