package algo

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

var counterTo = flag.String("counter.out", "", "file to write the table of TestCounterAgainstLog to")

// TestCounterAgainstLog measures how often the window counter decides otherwise than an exact
// log of what it admitted would have, and by how much it exceeds the limit within any window.
// Nothing in it depends on the speed of the machine: the table is that of docs/counter.md.
func TestCounterAgainstLog(t *testing.T) {
	const window, limit = 60_000_000, 100
	p, err := Limit{Kind: SlidingWindowCounter, N: limit, Per: window}.Params()
	if err != nil {
		t.Fatal(err)
	}
	// arrivals calls ask with the times of an hour, at rates in limits.
	arrivals := func(seed uint64, rate func(now int64) float64, ask func(now int64)) {
		random := rand.New(rand.NewPCG(seed, 1))
		for now := int64(1e15); now < 1e15+60*window; {
			r := rate(now)
			if r <= 0 {
				now += window / 100
				continue
			}
			now += int64(random.ExpFloat64() * window / limit / r)
			ask(now)
		}
	}
	even := func(rate float64) func(int64) float64 { return func(int64) float64 { return rate } }
	rows := []struct {
		traffic string
		keys    int
		rate    func(key int) func(now int64) float64
	}{
		{"even, half of the limit", 20, func(int) func(int64) float64 { return even(0.5) }},
		{"even, 0.9 of the limit", 20, func(int) func(int64) float64 { return even(0.9) }},
		{"even, the limit", 20, func(int) func(int64) float64 { return even(1) }},
		{"even, twice the limit", 20, func(int) func(int64) float64 { return even(2) }},
		{"half a window at three times the limit, then nothing for as long", 20, func(int) func(int64) float64 {
			return func(now int64) float64 {
				if now/(window/2)%2 == 0 {
					return 3
				}
				return 0
			}
		}},
		{"the first second of each window at a hundred times the limit", 20, func(int) func(int64) float64 {
			return func(now int64) float64 {
				if now%window < window/60 {
					return 100
				}
				return 0
			}
		}},
		{"the last second of a window and the first half of the next at a hundred times", 20, func(int) func(int64) float64 {
			return func(now int64) float64 {
				if at := now % (2 * window); at > window-window/60 && at < window+window/2 {
					return 100
				}
				return 0
			}
		}},
		{"one key of 1,000 at twice the limit, the others at a tenth", 1000, func(key int) func(int64) float64 {
			if key == 0 {
				return even(2)
			}
			return even(0.1)
		}},
	}
	var b strings.Builder
	fmt.Fprintln(&b, "| traffic of a key | denied | admitted, and the log denies | denied, and the log admits | most within any window ÷ limit |")
	fmt.Fprintln(&b, "|---|---|---|---|---|")
	for _, row := range rows {
		var asked, denied, tooMany, tooFew, most int
		for key := range row.keys {
			var s State
			var admitted []int64 // within the window that ends now
			arrivals(uint64(key), row.rate(key), func(now int64) {
				old := 0
				for old < len(admitted) && admitted[old] <= now-window {
					old++
				}
				admitted = slices.Delete(admitted, 0, old)
				room := len(admitted) < limit
				asked++
				switch d := Step(p, &s, now, 1); {
				case !d.Allowed:
					denied++
					if room {
						tooFew++
					}
					return
				case !room:
					tooMany++
				}
				admitted = append(admitted, now)
				most = max(most, len(admitted))
			})
		}
		if strings.Contains(row.traffic, "half of the limit") && tooMany+tooFew > 0 {
			t.Errorf("%s: %d of %d decisions are wrong", row.traffic, tooMany+tooFew, asked)
		}
		// A window that ends anywhere takes in parts of two windows of the counter, each of which
		// admits the limit at most.
		if most >= 2*limit {
			t.Errorf("%s: %d within a window", row.traffic, most)
		}
		share := func(n int) string { return fmt.Sprintf("%.3g %%", 100*float64(n)/float64(asked)) }
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.2f |\n", row.traffic, share(denied), share(tooMany), share(tooFew), float64(most)/limit)
	}
	if *counterTo != "" {
		text := "Computed by `make counter`: 100 per minute, for an hour of each key.\n\n" + b.String()
		if err := os.WriteFile(*counterTo, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile("../../docs/counter.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(page), b.String()) {
		t.Errorf("docs/counter.md has other figures: run make counter\n%s", b.String())
	}
}
