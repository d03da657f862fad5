package lua

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestRepliesAtTheirBorders: the least and the greatest numbers that replies may have are taken, and the next ones are
// errors, as is a number too few or too many.
func TestRepliesAtTheirBorders(t *testing.T) {
	const most = algo.MaxExact
	limit := gcraItem()
	ask := func() Command {
		return &Permits{Items: []PermitItem{{Ask: &PermitAsk{Callers: []string{"a"}}}, {Leave: new(Leaver)}, {Ask: new(PermitAsk)}}}
	}
	for name, c := range map[string]struct {
		of        func() Command
		good, bad [][]int64
	}{
		"block": {func() Command { return &Block{Keys: limit.Keys, Params: limit.Params} }, [][]int64{{1}, {most}}, [][]int64{{}, {0}, {-1}, {most + 1}, {1, 1}, {-1, 1}}},
		"beat": {func() Command { return new(Beat) }, [][]int64{{0, 0, 0, 0}, {most, most, most, most}},
			[][]int64{{0, 0, 0}, {0, 0, 0, 0, 0}, {-1, 0, 0, 0}, {0, -1, 0, 0}, {0, 0, -1, 0}, {0, 0, 0, -1}, {0, 0, 0, most + 1}}},
		"given back": {func() Command { return &GiveBack{Items: []Taken{{Units: 3}, {Units: 5}}} }, [][]int64{{0, 0}, {3, 5}}, [][]int64{{0}, {0, 0, 0}, {-1, 0}, {4, 5}, {3, 6}}},
		"report": {func() Command { return &Report{Asked: make([]Asked, 1)} }, [][]int64{{0, 0, 0}, {most, most, most}},
			[][]int64{{0, 0}, {}, {0}, {0, 0, 0, 0}, {-1, 0, 0}, {0, most + 1, 0}, {0, 0, -1}}},
		"bury":    {func() Command { return new(Bury) }, [][]int64{{1, 0}, {2, most}}, [][]int64{{1}, {1, 0, 0}, {1, -1}, {1, most + 1}}},
		"publish": {func() Command { return new(Publish) }, [][]int64{{0}, {most}}, [][]int64{{}, {0, 0}, {-1}, {most + 1}}},
		"unblock": {func() Command { return new(Unblock) }, [][]int64{{0}, {1}}, [][]int64{{}, {0, 0}, {-1}}},
		"learnt": {func() Command { return new(Learnt) }, [][]int64{{}, {-1 << 60, 0, 0, 0, 0, 0, 0}, {1 << 60, most, most, most, most, most, most}},
			[][]int64{{1}, {0, 0, 0, 0, 0, 0, 0, 0}, {0, -1, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, -1}, {0, 0, 0, most + 1, 0, 0, 0}}},
		"permits": {ask, [][]int64{{1, 0, 0, 0, 0, 0, 0, 0}, {1, most, most, most, 1, most, most, most}},
			[][]int64{{}, {1}, {1, 0, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0, 0, 0}, {1, -2, 0, 0, 0, 0, 0, 0}, {1, 0, -1, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0, most + 1}}},
		"kept": {func() Command {
			return &KeepPermits{Of: []Holders{{Callers: []string{"a"}}, {Callers: []string{"b", "c"}}}}
		}, [][]int64{{0, 0, 0}, {1, 1, 1}}, [][]int64{{}, {0, 0}, {0, 0, 0, 0}}},
		"left":     {func() Command { return &Permits{Items: []PermitItem{{Leave: new(Leaver)}}} }, [][]int64{{0}, {1}}, nil},
		"decision": {func() Command { return &Decide{Items: []Item{gcraItem()}} }, [][]int64{{1, 100_000}, {most, 1_000_000}}, [][]int64{{}, {1}, {0, 100_000}, {most + 1, 100_000}, {1, 100_000, 1, 1}}},
		"decisions": {func() Command { return &DecideAll{Of: 1, Items: []Item{gcraItem(), gcraItem()}} }, [][]int64{{1, 1, 100_000, 1, 100_000}, {most, 1, 1_000_000, 1, 1_000_000}},
			[][]int64{{}, {1, 1, 100_000, 1}, {0, 1, 100_000, 1, 100_000}, {most + 1, 1, 100_000, 1, 100_000}, {1, 1, 100_000, 1, 100_000, 3, 1, 5}, {1, 1, 100_000, 1, 100_000, 1}}},
	} {
		for _, v := range c.good {
			if err := c.of().reply(slices.Clone(v)); err != nil {
				t.Errorf("%s: %v: %v", name, v, err)
			}
		}
		for _, v := range c.bad {
			var reply *ReplyError
			if err := c.of().reply(slices.Clone(v)); !errors.As(err, &reply) {
				t.Errorf("%s: %v: %v", name, v, err)
			}
		}
	}
}

// TestRepliesAreTold: each number of a reply stands where it is read.
func TestRepliesAreTold(t *testing.T) {
	limit := gcraItem()
	block, beat, report, bury, last := &Block{Keys: limit.Keys, Params: limit.Params}, new(Beat), &Report{Asked: make([]Asked, 2)}, new(Bury), new(Bury)
	publish, unblock, was, kept := new(Publish), new(Unblock), new(Unblock), &KeepPermits{Of: []Holders{{Callers: []string{"a", "b"}}}}
	learnt := &Learnt{Out: []LearntQuota{{Name: 99}}}
	permits := &Permits{Items: []PermitItem{{Leave: new(Leaver)}, {Ask: &PermitAsk{Key: "first"}}, {Ask: &PermitAsk{Callers: []string{"a", "b"}}}}}
	for cmd, v := range map[Command][]int64{
		block: {7}, beat: {1, 2, 3, 4}, report: {1, 2, 3, 4}, bury: {2, 9}, last: {1, 0}, publish: {3}, unblock: {0}, was: {1}, kept: {0, 1},
		learnt: {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, permits: {1, -1, 0, 0, 4, 5, 6, 1, 0},
	} {
		if err := cmd.reply(v); err != nil {
			t.Errorf("%T: %v", cmd, err)
		}
	}
	for i, c := range [][2]any{
		{block.Left, int64(7)}, {[]int64{beat.Alive, beat.Fresh, beat.Oldest, beat.Newest}, []int64{1, 2, 3, 4}},
		{[]int64{report.Alive, report.Dead, report.Asked[0].Fleet, report.Asked[1].Fleet}, []int64{1, 2, 3, 4}},
		{bury.More, true}, {bury.Dead, int64(9)}, {last.More, false}, {publish.Processes, int64(3)}, {unblock.Was, false}, {was.Was, true},
		{kept.Lost, []bool{false, true}}, {learnt.Out, []LearntQuota{{1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14}}},
		{permits.Items[2].Got, PermitReply{Granted: []bool{true, false}, Held: 4, Ahead: 5, NextEnd: 6}},
	} {
		if !reflect.DeepEqual(c[0], c[1]) {
			t.Errorf("%d: %+v, want %+v", i, c[0], c[1])
		}
	}
	if got := permits.Items[1].Got; got.Err == nil || got.Granted != nil || got.Held != 0 {
		t.Errorf("a key that does not hold permits: %+v", got)
	}
}

// TestWhatWasWritten: a command has charged, or written, where something was admitted or waits.
func TestWhatWasWritten(t *testing.T) {
	allowed, denied := algo.Decision{Allowed: true}, algo.Decision{}
	for i, c := range []struct {
		of   func() bool
		want bool
	}{
		{(&Decide{Items: []Item{{Cost: 1}, {Cost: 1, Admitted: 1}}}).Charged, true}, {(&Decide{Items: []Item{{Cost: 1}}}).Charged, false},
		{(&Decide{Items: []Item{{Cost: 0, Admitted: 1}}}).Charged, false}, {(&Decide{Items: []Item{{Cost: -1, Admitted: 1}}}).Charged, false},
		{(&DecideAll{Of: 2, Items: []Item{{Cost: 1}, {Cost: 1}}, Out: []algo.Decision{allowed, allowed}}).Charged, true},
		{(&DecideAll{Of: 2, Items: []Item{{Cost: 1}, {Cost: 1}}, Out: []algo.Decision{allowed, denied}}).Charged, false},
		{(&DecideAll{Of: 2, Items: []Item{{}, {}}, Out: []algo.Decision{allowed, allowed}}).Charged, false},
		{(&DecideAll{Of: 1, Items: []Item{{Cost: 1}, {Cost: 1}}, Out: []algo.Decision{denied, allowed}}).Charged, true},
		{(&DecideAll{Of: 1, Items: []Item{{Cost: 1}}}).Charged, false},
		{(&Decide{Items: []Item{{}, {}}}).Peeks, true}, {(&Decide{Items: []Item{{}, {Cost: -1}}}).Peeks, false}, {(&DecideAll{Items: []Item{{Cost: 1}, {}}}).Peeks, false},
		{(&Permits{Items: []PermitItem{{Leave: new(Leaver)}, {Ask: &PermitAsk{Wait: true, Callers: []string{"a"}}}}}).Wrote, true},
		{(&Permits{Items: []PermitItem{{Ask: &PermitAsk{Wait: true}}, {Ask: &PermitAsk{Callers: []string{"a"}}}}}).Wrote, false},
		{(&Permits{Items: []PermitItem{{Ask: &PermitAsk{Callers: []string{"a"}}, Got: PermitReply{Granted: []bool{true}}}}}).Wrote, true},
		{(&Permits{Items: []PermitItem{{Ask: &PermitAsk{Wait: true, Callers: []string{"a"}}, Got: PermitReply{Err: errors.New("broken")}}}}).Wrote, false},
	} {
		if got := c.of(); got != c.want {
			t.Errorf("%d: %v", i, got)
		}
	}
	log, bucket := algo.Params{Kind: algo.SlidingWindowLog, Cap: 100}, algo.Params{Kind: algo.GCRA, Cap: 100}
	for i, got := range []int64{Work(&log, 0), Work(&log, 1), Work(&log, 99), Work(&log, 101), Work(&bucket, 50)} {
		if want := []int64{1, 1, 99, 100, 1}[i]; got != want {
			t.Errorf("%d: %d units of work, want %d", i, got, want)
		}
	}
}
