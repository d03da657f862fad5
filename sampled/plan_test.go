package sampled

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// simulation is a fleet of processes that report one after the other, evenly spread over the
// interval, as processes that started at different times do. Redis is one sum.
type simulation struct {
	rng    *rand.Rand
	limit  float64
	demand []demand
	keys   []sample
	report []float64
	asked  []int
	alone  bool // Redis cannot be reached
}

func newSimulation(processes int, limit float64) *simulation {
	s := &simulation{
		rng: rand.New(rand.NewPCG(1, 2)), limit: limit,
		demand: make([]demand, processes), keys: make([]sample, processes),
		report: make([]float64, processes), asked: make([]int, processes),
	}
	for i := range s.keys {
		s.keys[i].left.Store(int64(first(limit, 1/float64(processes))))
		s.keys[i].admit(1)
	}
	return s
}

// interval lets requests come at a mean rate to each process, and returns how many
// were admitted and how many came.
func (s *simulation) interval(mean func(process int) float64) (admitted, came float64) {
	n := len(s.keys)
	for slot := range n {
		for i := range s.keys {
			k := &s.keys[i]
			for range s.poisson(mean(i) / float64(n)) {
				came++
				s.asked[i]++
				if t := k.threshold.Load(); (t == always || s.rng.Uint64() < t) && k.left.Load() >= 1 {
					k.left.Add(-1)
					admitted++
				}
			}
		}
		// One process is at the end of its interval.
		s.keys[slot].recent.add(float64(s.asked[slot]))
		own := s.keys[slot].recent.mean()
		s.report[slot] = own
		var fleet float64
		for _, r := range s.report {
			fleet += r
		}
		part := s.demand[slot].next(own, s.keys[slot].recent.intervals, fleet, s.limit, n)
		if s.alone {
			part = alone(own, s.limit, 1/float64(n))
		}
		s.keys[slot].begin(part, s.alone)
		s.asked[slot] = 0
	}
	return admitted, came
}

// poisson is by Knuth's method, or for large means by the normal distribution.
func (s *simulation) poisson(mean float64) int {
	if mean > 50 {
		return max(0, int(math.Round(mean+math.Sqrt(mean)*s.rng.NormFloat64())))
	}
	n, p := 0, s.rng.Float64()
	for ; p > math.Exp(-mean); n++ {
		p *= s.rng.Float64()
	}
	return n
}

// even is the same mean for all of n processes; skewed gives the first ones most.
func even(total float64, n int) func(int) float64 {
	return func(int) float64 { return total / float64(n) }
}

func skewed(total float64, n int) func(int) float64 {
	var sum float64
	for i := range n {
		sum += 1 / float64(i+1)
	}
	return func(i int) float64 { return total / float64(i+1) / sum }
}

// TestSamplingSimulated: by how much a fleet misses the limit in a steady state, in
// the intervals after what it is asked for has become ten times as much, and when a
// few processes get most of it. The bounds are those that the documentation states.
func TestSamplingSimulated(t *testing.T) {
	const limit = 1000
	for _, n := range []int{2, 8, 50} {
		for name, traffic := range map[string]func(float64, int) func(int) float64{"even": even, "skewed": skewed} {
			// Steady: three times the limit.
			s := newSimulation(n, limit)
			for range 5 {
				s.interval(traffic(3*limit, n))
			}
			var sum, worst float64
			const intervals = 200
			for range intervals {
				got, _ := s.interval(traffic(3*limit, n))
				sum += got
				worst = max(worst, math.Abs(got-limit)/limit)
			}
			mean := sum/intervals/limit - 1
			// A step from half the limit to five times it.
			s = newSimulation(n, limit)
			for i := range 10 {
				// The first two are decided by equal shares, whoever asks for more.
				if got, came := s.interval(traffic(limit/2, n)); i > 1 && got < came*0.9 {
					t.Errorf("%d processes, %s: %v of %v admitted below the limit", n, name, got, came)
				}
			}
			var step [4]float64
			for i := range step {
				got, _ := s.interval(traffic(5*limit, n))
				step[i] = got/limit - 1
			}
			t.Logf("%2d processes, %-6s: steady %+.1f %% on average, %.1f %% at worst; step %+.0f %%, %+.0f %%, %+.0f %%, %+.0f %%", n, name,
				100*mean, 100*worst, 100*step[0], 100*step[1], 100*step[2], 100*step[3])
			if math.Abs(mean) > 0.01 || worst > 0.12 {
				t.Errorf("%d processes, %s: steady error %v on average, %v at worst", n, name, mean, worst)
			}
			if step[0] > 0.6 || step[1] > 0.05 || step[2] > 0.1 || math.Abs(step[3]) > 0.1 {
				t.Errorf("%d processes, %s: a step of ten times misses by %v", n, name, step)
			}
		}
	}
}

// TestPlanIsWithinTheLimit: when all processes have the same reports, the parts of
// the limit are at most the limit.
func TestPlanIsWithinTheLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		n := 1 + rng.IntN(20)
		own := make([]float64, n)
		var fleet, quota, admitted float64
		for i := range own {
			own[i] = rng.Float64() * 200
			fleet += own[i]
		}
		for i := range own {
			var d demand
			p := d.next(own[i], 1, fleet, 1000, n)
			if p.own != own[i] || p.quota < 0 || p.most < p.quota {
				t.Fatalf("%+v", p)
			}
			quota += p.quota
			admitted += min(p.quota, own[i])
		}
		if quota > 1000+1e-6 || admitted > 1000+1e-6 || fleet > 1000 && admitted < 1000-1e-6 || fleet <= 1000 && admitted < fleet-1e-6 {
			t.Fatalf("%d processes asked for %v: parts of %v, %v admitted", n, fleet, quota, admitted)
		}
	}
}

// TestSampledFractions: what is below one unit in an interval, of the rate or of a share
// of it, is admitted over time: the rate, and at most one unit more of each process.
// Redis known or not, and whether each is asked all the time or now and then.
func TestSampledFractions(t *testing.T) {
	for _, n := range []int{1, 8} {
		for _, limit := range []float64{1.0 / 360, 0.05, 0.4, 1.5, 7} {
			for _, mean := range []float64{0.05, 1, 30} {
				for _, alone := range []bool{false, true} {
					s := newSimulation(n, limit)
					s.alone = alone
					intervals := int(math.Ceil(20 / min(limit, 0.05)))
					var got, came float64
					for range intervals {
						admitted, c := s.interval(func(int) float64 { return mean })
						got, came = got+admitted, came+c
					}
					name := fmt.Sprintf("%d processes, %.4f per interval, each asked for %v, alone: %v", n, limit, mean, alone)
					most := limit*float64(intervals) + float64(n)*(1+noise(limit)+1)
					if got > most {
						t.Errorf("%s: %v admitted, at most %v", name, got, most)
					}
					// Each process has at least its equal part, as far as it is asked for that.
					if least := 0.7*min(came, limit*float64(intervals)) - 2*math.Sqrt(limit*float64(intervals)); mean >= 1 && got < least {
						t.Errorf("%s: %v of %v admitted, at least %v", name, got, came, least)
					}
				}
			}
		}
	}
}

// TestSampledCostsFit: a cost that is within the limit is admitted at some time, though
// the quota of an interval is below it.
func TestSampledCostsFit(t *testing.T) {
	var k sample
	admitted := 0
	for range 100 {
		k.begin(plan{own: 10, quota: 1.25, most: 3}, false)
		if left := k.left.Add(-10); left >= 0 {
			admitted++
		} else {
			k.left.Add(10)
			k.denied.Store(10)
		}
	}
	if admitted != 12 {
		t.Errorf("%d times 10 units of 125 were admitted", admitted)
	}
}
