package sim

import "slices"

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
		q.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool { return c.Of >= len(q.Limits) })
		plans = append(plans, q)
	}
	if len(p.Permits) > 0 {
		q := p
		q.Permits = p.Permits[:len(p.Permits)-1]
		plans = append(plans, q)
	}
	for i, l := range p.Limits {
		if l.Lease > 0 || l.Parts > 1 || l.Headroom > 0 {
			q := p
			q.Limits = slices.Clone(p.Limits)
			q.Limits[i] = Limit{Limit: l.Limit, Unit: l.Unit, Zone: l.Zone}
			plans = append(plans, q)
		}
	}
	if p.Shape != Single && p.Shape.servers() == 1 {
		q := p
		q.Shape = Single
		plans = append(plans, q)
	}
	if len(p.Changes) > 0 {
		q := p
		q.Changes = p.Changes[:len(p.Changes)-1]
		plans = append(plans, q)
	}
	if p.Options.LocalKeys > 0 {
		q := p
		q.Options.LocalKeys = 0
		plans = append(plans, q)
	}
	if p.Host.Limit > 0 {
		q := p
		q.Host = Host{}
		plans = append(plans, q)
	}
	if p.Varied > 0 {
		q := p
		q.Varied = 0
		plans = append(plans, q)
	}
	if p.Waits+p.Hasty > 0 {
		q := p
		q.Waits, q.Hasty = 0, 0
		plans = append(plans, q)
	}
	if p.Traffic != (Traffic{}) {
		q := p
		q.Traffic = Traffic{}
		plans = append(plans, q)
	}
	if p.Sampled.Keys > 0 {
		q := p
		q.Sampled = Sampled{}
		plans = append(plans, q)
	}
	if p.Looks > 0 {
		q := p
		q.Looks = 0
		plans = append(plans, q)
	}
	return plans
}
