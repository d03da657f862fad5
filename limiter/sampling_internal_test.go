package limiter

import (
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
	plans  []plan
	report []float64
	asked  []int
	used   []float64
}

func newSimulation(processes int, limit float64) *simulation {
	s := &simulation{
		rng: rand.New(rand.NewPCG(1, 2)), limit: limit,
		demand: make([]demand, processes), plans: make([]plan, processes),
		report: make([]float64, processes), asked: make([]int, processes), used: make([]float64, processes),
	}
	for i := range s.plans {
		s.plans[i] = alone(0, limit, 1/float64(processes))
	}
	return s
}

// interval lets requests come at a mean rate to each process, and returns how many
// were admitted and how many came.
func (s *simulation) interval(mean func(process int) float64) (admitted, came float64) {
	n := len(s.plans)
	for slot := range n {
		for i := range s.plans {
			for range s.poisson(mean(i) / float64(n)) {
				came++
				s.asked[i]++
				if s.rng.Float64() < s.plans[i].p && s.used[i]+1 <= s.plans[i].most {
					s.used[i]++
					admitted++
				}
			}
		}
		// One process is at the end of its interval.
		own := float64(s.asked[slot])
		s.report[slot] = own
		var fleet float64
		for _, r := range s.report {
			fleet += r
		}
		s.plans[slot] = s.demand[slot].next(own, fleet, s.limit, n)
		s.asked[slot], s.used[slot] = 0, 0
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
			if math.Abs(mean) > 0.03 || worst > 0.2 {
				t.Errorf("%d processes, %s: steady error %v on average, %v at worst", n, name, mean, worst)
			}
			if step[0] > 1 || step[1] > 0.3 || step[2] > 0.2 || math.Abs(step[3]) > 0.2 {
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
			p := d.next(own[i], fleet, 1000, n)
			if p.p < 0 || p.p > 1 || p.quota < 0 || p.most < p.quota {
				t.Fatalf("%+v", p)
			}
			quota += p.quota
			admitted += p.p * own[i]
		}
		if quota > 1000+1e-6 || admitted > 1000+1e-6 || fleet > 1000 && admitted < 1000-1e-6 || fleet <= 1000 && admitted < fleet-1e-6 {
			t.Fatalf("%d processes asked for %v: parts of %v, %v admitted", n, fleet, quota, admitted)
		}
	}
}
