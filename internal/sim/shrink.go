package sim

import (
	"slices"
	"testing"
)

// shrink looks for a smaller plan that breaks the same promise, in at most so many runs.
func shrink(t *testing.T, p Plan, promise string, runs int) Plan {
	breaks := func(smaller Plan) bool {
		if runs == 0 {
			return false
		}
		runs--
		for _, v := range Run(t, smaller, false).Violations {
			if v.Promise == promise {
				return true
			}
		}
		return false
	}
	for again := true; again && runs > 0; {
		again = false
		for _, smaller := range p.smaller() {
			if breaks(smaller) {
				p, again = smaller, true
				break
			}
		}
	}
	return p
}

// smaller lists plans with one thing less.
func (p Plan) smaller() (plans []Plan) {
	for i := range p.Faults {
		q := p
		q.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
		plans = append(plans, q)
	}
	for i := range p.Joins {
		q := p
		q.Joins = slices.Delete(slices.Clone(p.Joins), i, i+1)
		plans = append(plans, q)
	}
	for i := range p.Leaves {
		q := p
		q.Leaves = slices.Delete(slices.Clone(p.Leaves), i, i+1)
		plans = append(plans, q)
	}
	if p.Processes > 1 && len(p.Leaves) == 0 {
		q := p
		q.Processes--
		q.Faults = slices.Clone(p.Faults)
		for i := range q.Faults {
			if of := q.Faults[i].Of; of != nil {
				q.Faults[i].Of = slices.DeleteFunc(slices.Clone(of), func(n int) bool { return n >= q.Processes })
			}
		}
		plans = append(plans, q)
	}
	if p.Callers > 1 {
		q := p
		q.Callers--
		plans = append(plans, q)
	}
	if len(p.Limits) > 1 {
		q := p
		q.Limits = p.Limits[:len(p.Limits)-1]
		plans = append(plans, q)
	}
	if p.Looks > 0 {
		q := p
		q.Looks = 0
		plans = append(plans, q)
	}
	return plans
}
