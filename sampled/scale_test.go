//go:build !race

package sampled

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// parts is in how many parts an interval of a simulated large fleet is divided.
const parts = 5

// largeFleet is a fleet that asks for one key, whose processes end their intervals and report at different times. Plans, their
// probabilities and the times of reports are those of the library; Redis is one sum, which takes no time.
type largeFleet struct {
	rng      *rand.Rand
	reporter *reporter
	limit    float64 // in an interval
	mean     []float64
	demand   []demand
	keys     []sample
	report   []float64 // what each process reported last
	next     []time.Duration
	sum      float64
	now      time.Duration
	reports  int
}

// newLargeFleet is one in a steady state, in which all processes ask for a part of the limit.
func newLargeFleet(t testing.TB, n int, perSecond float64, asked float64) *largeFleet {
	const interval = 100 * time.Millisecond
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2})
	t.Cleanup(func() { _ = rdb.Close() })
	link, err := redislink.New(redislink.Config{Client: rdb, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	link.Counted(int64(n))
	f := &largeFleet{
		rng: rand.New(rand.NewPCG(1, 2)), reporter: newReporter(link, interval), limit: float64(n) * perSecond * interval.Seconds(),
		mean: make([]float64, n), demand: make([]demand, n), keys: make([]sample, n), report: make([]float64, n),
		next: make([]time.Duration, n),
	}
	f.ask(asked)
	_, most := f.reporter.pause()
	for i := range f.keys {
		f.report[i] = f.mean[i]
		f.sum += f.mean[i]
		f.next[i] = time.Duration(f.rng.Int64N(int64(most)))
		for range mostRecent {
			f.keys[i].recent.add(float64(f.poisson(f.mean[i])))
		}
	}
	for i := range f.keys {
		f.demand[i] = demand{own: f.mean[i], fleet: f.sum, known: true}
		f.keys[i].begin(f.demand[i].next(f.mean[i], mostRecent, f.sum, f.limit, n), false)
	}
	return f
}

// ask lets each process be asked for the same part of the limit.
func (f *largeFleet) ask(part float64) {
	for i := range f.mean {
		f.mean[i] = part * f.limit / float64(len(f.mean))
	}
}

// second lets a second pass, and returns which part of the limit was admitted.
func (f *largeFleet) second() float64 {
	var admitted float64
	interval := f.reporter.interval
	for range time.Second / interval {
		for part := range parts {
			f.now += interval / parts
			for i := range f.keys {
				k := &f.keys[i]
				// Of what comes at random, what a threshold admits comes at random, too.
				p, mean := float64(k.threshold.Load())/math.MaxUint64, f.mean[i]/parts
				passed := f.poisson(mean * p)
				k.asked.Add(int64(passed + f.poisson(mean*(1-p))))
				passed = min(passed, int(max(0, k.left.Load())))
				k.left.Add(-int64(passed))
				admitted += float64(passed)
				if i%parts == part {
					f.tick(i, k)
				}
			}
		}
	}
	return admitted / f.limit * interval.Seconds()
}

// tick is Limiter.turn for one key.
func (f *largeFleet) tick(i int, k *sample) {
	asked := k.asked.Swap(0)
	k.recent.add(float64(asked))
	own := k.recent.mean()
	least, most := f.reporter.pause()
	if least > f.reporter.interval && f.now+f.reporter.interval/2 < f.next[i] {
		k.again(own, f.limit, 1/float64(len(f.keys)))
		return
	}
	f.reports++
	f.next[i] = f.now + least + time.Duration(f.rng.Int64N(int64(most-least+1)))
	f.sum += own - f.report[i]
	f.report[i] = own
	k.begin(f.demand[i].next(own, k.recent.intervals, f.sum, f.limit, len(f.keys)), false)
}

// poisson is by Knuth's method, or for large means by the normal distribution.
func (f *largeFleet) poisson(mean float64) int {
	if mean > 12 {
		return max(0, int(math.Round(mean+math.Sqrt(mean)*f.rng.NormFloat64())))
	}
	if mean <= 0 {
		return 0
	}
	n, p, least := 0, f.rng.Float64(), math.Exp(-mean)
	for ; p > least; n++ {
		p *= f.rng.Float64()
	}
	return n
}

// missed is how much a fleet of n processes misses a limit of so many decisions per second and process: on average
// in a steady state in which it asks for some parts of the limit, in the second after it asked for a
// half and asks for ten times that, at most in the seconds after that; and how often it reports.
type missed struct {
	steady      map[float64]float64
	step, later float64
	reports     int // in a second
}

func miss(t testing.TB, n int, perSecond float64, parts []float64, seconds int) missed {
	m := missed{steady: map[float64]float64{}}
	for _, part := range parts {
		f := newLargeFleet(t, n, perSecond, part)
		f.second()
		f.reports = 0
		for range seconds {
			m.steady[part] += (f.second()/min(1, part) - 1) / float64(seconds)
		}
		m.reports = max(m.reports, f.reports/seconds)
	}
	f := newLargeFleet(t, n, perSecond, 0.5)
	f.second()
	f.ask(5)
	m.step = f.second() - 1
	_, most := f.reporter.pause()
	for range max(seconds, int(most/time.Second)) {
		m.later = max(m.later, math.Abs(f.second()-1))
	}
	return m
}

// TestLargeFleetsAreExact: fleets of 1,000 and 10,000 processes, with a limit of a hundred decisions per second and
// process, miss it by what docs/scale.md says, though they make no more than 2,500 calls a second.
func TestLargeFleetsAreExact(t *testing.T) {
	for n, seconds := range map[int]int{1000: 5, 10_000: 2} {
		m := miss(t, n, 100, []float64{0.5, 3}, seconds)
		t.Logf("%d processes: %+v", n, m)
		if math.Abs(m.steady[0.5]) > 0.02 || math.Abs(m.steady[3]) > 0.02 || math.Abs(m.step) > 0.05 || m.later > 0.02 || m.reports > reportsPerSecond {
			t.Errorf("%d processes: %+v", n, m)
		}
	}
}

// TestScale writes into docs/scale.md, and draws beside it, how often large fleets report and by how much they
// miss their limit. make scale runs it, and names the file by SCALE.
func TestScale(t *testing.T) {
	file := os.Getenv("SCALE")
	if file == "" {
		return
	}
	sizes, rates := []int{100, 1000, 10_000, 100_000}, []float64{10, 100, 1000}
	var table strings.Builder
	table.WriteString("| processes | limit per second and process | a report every | calls per second | steady, asked for half the limit | for 0.9 of it | for three times | first second of the step | worst second after that |\n|---|---|---|---|---|---|---|---|---|\n")
	calls, steps, steady := make([]float64, len(sizes)), map[float64][]float64{}, map[float64][]float64{}
	for i, n := range sizes {
		for _, rate := range rates {
			if float64(n)*rate > 10_000_000 {
				continue // more than any fleet asks for, and hours
			}
			least, _ := newLargeFleet(t, n, rate, 1).reporter.pause()
			seconds := 5
			m := miss(t, n, rate, []float64{0.5, 0.9, 3}, seconds)
			t.Logf("%d processes, %v per second: %+v", n, rate, m)
			fmt.Fprintf(&table, "| %d | %.0f | %v | %d | %+.1f %% | %+.1f %% | %+.1f %% | %+.1f %% | %.1f %% |\n", n, rate, least, m.reports, 100*m.steady[0.5], 100*m.steady[0.9], 100*m.steady[3], 100*m.step, 100*m.later)
			calls[i] = float64(m.reports)
			steps[rate] = append(steps[rate], 100*math.Abs(m.step))
			steady[rate] = append(steady[rate], 100*max(math.Abs(m.steady[0.5]), math.Abs(m.steady[3])))
		}
	}
	redistest.Section(t, file, "sampled", table.String())
	var svg strings.Builder
	svg.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 250" font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>` + "\n")
	curve := func(x0, top float64, color, dash, name string, label int, ys []float64) {
		var points strings.Builder
		for i, y := range ys {
			fmt.Fprintf(&points, "%.1f,%.1f ", x0+float64(i)*95, 210-170*min(1, y/top))
		}
		fmt.Fprintf(&svg, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/><text x="%.0f" y="%d" fill="%s">%s</text>`+"\n", points.String(), color, dash, x0+8, 48+13*label, color, name)
	}
	frame := func(x0, top float64, title, unit string) {
		fmt.Fprintf(&svg, `<text x="%.0f" y="20" font-size="13">%s</text>`+"\n", x0-30, title)
		for i := range 5 {
			y := 210 - 42.5*float64(i)
			fmt.Fprintf(&svg, `<path d="M%.0f %.1fh285" stroke="#ddd"/><text x="%.0f" y="%.1f" text-anchor="end">%g%s</text>`+"\n", x0, y, x0-4, y+4, top*float64(i)/4, unit)
		}
		for i, n := range sizes {
			fmt.Fprintf(&svg, `<text x="%.0f" y="228" text-anchor="middle">%d</text>`+"\n", x0+float64(i)*95, n)
		}
		fmt.Fprintf(&svg, `<text x="%.0f" y="244" text-anchor="middle">processes</text>`+"\n", x0+142)
	}
	frame(60, 10_000, "calls per second to report, every 100 ms", "")
	curve(60, 10_000, "#ff725c", "4 3", "one per interval: 1,000,000 of 100,000 processes", 0, []float64{1000, 10_000})
	curve(60, 10_000, "#4269d0", "", "at most 2,500", 1, calls)
	frame(440, 40, "error, by the limit per second and process", " %")
	for i, color := range []string{"#efb118", "#3ca951", "#4269d0"} {
		curve(440, 40, color, "", fmt.Sprintf("%.0f: first second of the step", rates[i]), 2*i, steps[rates[i]])
		curve(440, 40, color, "4 3", fmt.Sprintf("%.0f: steady, at half and three times the limit", rates[i]), 2*i+1, steady[rates[i]])
	}
	svg.WriteString("</svg>\n")
	if err := os.WriteFile(strings.TrimSuffix(file, ".md")+".svg", []byte(svg.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
