package algo

import "testing"

// TestTwoLimitsOfOneKey: while some processes know of a change and others do not, as in a deploy, the key admits no more
// than by the larger limit.
func TestTwoLimitsOfOneKey(t *testing.T) {
	for _, kind := range Kinds {
		for name, limits := range map[string][2]Limit{
			"another burst":          {{N: 10, Per: sec, Burst: 10}, {N: 10, Per: sec, Burst: 100}},
			"another rate":           {{N: 100, Per: sec, Burst: 100}, {N: 10, Per: sec, Burst: 100}},
			"another burst and rate": {{N: 10, Per: sec, Burst: 10}, {N: 100, Per: sec, Burst: 100}},
		} {
			t.Run(kind.String()+", "+name, func(t *testing.T) {
				var s State
				var all [2]Params
				most := int64(0)
				for i, l := range limits {
					l.Kind = kind
					all[i] = params(t, l)
					most = max(most, all[i].Cap)
				}
				admitted := int64(0)
				for i := range 1000 {
					if Step(all[i%2], &s, t0, 1).Allowed {
						admitted++
					}
				}
				if admitted > most {
					t.Errorf("%d admitted at once, of at most %d", admitted, most)
				}
			})
		}
	}
}
