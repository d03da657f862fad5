//go:build !race

package inprocess

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

var usableTo = flag.String("usable.out", "", "file to write the table of TestUsablePart to")

// traffic is how a key is asked for over the processes, before an outage and in it.
type traffic struct {
	name        string
	before, now func(i, n int) float64 // weight of a process
	fresh       bool                   // another key than before
	// goal is the least part of what is asked for that is to be admitted, for up to 20
	// processes and for 200.
	goal, goal200 float64
}

func zipf(s float64) func(i, n int) float64 {
	return func(i, _ int) float64 { return math.Pow(float64(i+1), -s) }
}

func one(at int) func(i, n int) float64 {
	return func(i, n int) float64 {
		if i == at%n {
			return 1
		}
		return 0
	}
}

func reverse(weight func(i, n int) float64) func(i, n int) float64 {
	return func(i, n int) float64 { return weight(n-1-i, n) }
}

func half(second bool) func(i, n int) float64 {
	return func(i, n int) float64 {
		if i >= n/2 == second {
			return 1
		}
		return 0
	}
}

// traffics are those of the table.
var traffics = []traffic{
	{"even", zipf(0), zipf(0), false, 0.97, 0.97},
	{"Zipf 1", zipf(1), zipf(1), false, 0.83, 0.73},
	{"Zipf 2", zipf(2), zipf(2), false, 0.65, 0.55},
	{"all on one", one(0), one(0), false, 0.5, 0.48},
	{"moved since: Zipf 1, then in the reverse order", zipf(1), reverse(zipf(1)), false, 0.5, 0.4},
	{"moved since, to processes that had none", half(false), half(true), false, 0.3, 0.3},
	{"new key, even", zipf(0), zipf(0), true, 0.5, 0.5},
}

// outage lets a fleet ask for a key through Redis, for eight times as long as grants are
// remembered, loses Redis, and returns how much of what
// was asked for afterwards was admitted, and how much of what the limit lets through. demand
// is a part of the limit.
func outage(t *testing.T, p algo.Params, n int, e float64, of traffic, demand float64) (used, admitted float64) {
	const after, step = 30 * sec, sec / 50
	length, _ := p.Grants()
	before := 8*int64(length) + sec/2
	now := t0
	limit := float64(p.Num) / float64(p.Den)
	if p.Kind.Windowed() {
		limit = float64(p.Cap) / float64(p.Den)
	}
	var redis algo.State
	fleet := make([]*Store, n)
	for i := range fleet {
		fleet[i] = storeAt(t, 10, &now)
	}
	own := make([]algo.Params, n)
	asked, got := 0, 0
	serve := func(weight func(i, n int) float64, length int64, demand float64, ask func(i int)) {
		sum, due := 0.0, make([]float64, n)
		for i := range n {
			sum += weight(i, n)
		}
		for i := range due { // spread
			due[i] = math.Mod(float64(i)*0.618, 1)
		}
		for end := now + length; now < end; now += step {
			for i := range n {
				due[i] += limit * demand * float64(step) * weight(i, n) / sum
				for ; due[i] >= 1; due[i]-- {
					ask(i)
				}
			}
		}
	}
	key := "k"
	serve(of.before, before, 0.8, func(i int) {
		if d := algo.Decide(p, &redis, now, 1); d.Allowed {
			fleet[i].Observe(key, p, d, 1, 0)
		} else {
			fleet[i].Observe(key, p, d, 0, 0)
		}
	})
	if of.fresh {
		key = "new"
	}
	sum := 0.0
	for i, s := range fleet {
		claim := e/float64(n) + (1-e)*s.Granted(key, p, 0)
		sum += claim
		own[i] = p.Scale(claim)
		own[i].Phase = int64(math.Mod(float64(i)*0.618, 1) * (1 << 20)) // another one in each process
	}
	if sum > 1+1e-9 {
		t.Errorf("%v, %d processes, %s: claims of %v", p.Kind, n, of.name, sum)
	}
	serve(of.now, after, demand, func(i int) {
		asked++
		if fleet[i].Decide(key, own[i], 1).Allowed {
			got++
		}
	})
	return float64(got) / float64(asked), float64(got) / (limit*float64(after) + float64(p.Cap))
}

// TestUsablePart: how much of the limit is usable in an outage, for fleets whose traffic is
// spread evenly or not, and how much is admitted at most when every process wants three
// times the limit. Nothing in it depends on the speed of the machine. With -usable.out it
// writes the table of docs/shares.md.
func TestUsablePart(t *testing.T) {
	limits := map[string]algo.Limit{
		"GCRA, 1,000 per second, burst 1,000": {Kind: algo.GCRA, N: 1000, Per: sec, Burst: 1000},
		"fixed window, 1,000 per second":      {Kind: algo.FixedWindow, N: 1000, Per: sec},
	}
	var b strings.Builder
	for _, name := range []string{"GCRA, 1,000 per second, burst 1,000", "fixed window, 1,000 per second"} {
		p := mustParams(t, limits[name])
		fmt.Fprintf(&b, "**%s**\n\n| traffic of the key over the processes | 8 | 20 | 200 | equal shares: 8 | 20 | 200 | admitted ÷ limit, at most: 8 | 20 | 200 |\n|---|---|---|---|---|---|---|---|---|---|\n", name)
		for _, of := range traffics {
			var cells [3][]string
			for _, n := range []int{8, 20, 200} {
				if testing.Short() && n > 8 {
					continue
				}
				used, _ := outage(t, p, n, 0.5, of, 0.8)
				equal := math.NaN() // which only the table shows
				if *usableTo != "" {
					equal, _ = outage(t, p, n, 1, of, 0.8)
				}
				_, most := outage(t, p, n, 0.5, traffic{of.name, of.before, zipf(0), of.fresh, 0, 0}, 3)
				goal := of.goal
				if n == 200 {
					goal = of.goal200
				}
				if used < goal {
					t.Errorf("%d processes, %s: %.3f of what was asked for, want %v", n, of.name, used, goal)
				}
				if most > 1.05 {
					t.Errorf("%v, %d processes, %s: %.3f of the limit", p.Kind, n, of.name, most)
				}
				for i, v := range []float64{used, equal, most} {
					cells[i] = append(cells[i], fmt.Sprintf("%.2f", v))
				}
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", of.name, strings.Join(cells[0], " | "), strings.Join(cells[1], " | "), strings.Join(cells[2], " | "))
		}
		b.WriteString("\n")
	}
	t.Log("\n" + b.String())
	if *usableTo != "" {
		text := "Computed by `make shares`, in virtual time: the same on every machine.\n\n" + b.String()
		if err := os.WriteFile(*usableTo, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
