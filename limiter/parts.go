package limiter

import "fmt"

// Part is one limit of a Multi.
type Part struct {
	// Name tells the parts of a Multi apart, in results and in errors.
	Name string
	// Limiter decides. It is one of New, not of NewLocal. Parts that keep their state in the same
	// Redis need prefixes of their own: see WithPrefix.
	Limiter *Limiter
	// Key makes the part's key of the one that the Multi is asked for, as in
	// "the tenant of this user". Nil is the key itself, and so is an empty one.
	Key func(key string) string
}

// ask is what a part is asked for.
type ask struct {
	key   string
	n     int
	limit Limit // the zero value is the part's own
}

// of returns what the i-th part is asked for.
func (p *Part) of(key string, opts []CallOption, i int) ask {
	if p.Key != nil && key != "" {
		key = p.Key(key)
	}
	a := ask{key: key, n: 1}
	costs, limits := 0, 0
	for _, o := range opts {
		switch o := o.(type) {
		case Limit:
			if limits == i {
				a.limit = o
			}
			limits++
		case AtMost:
			a.n = int(o)
		case Cost:
			if costs == i || costs == 0 {
				a.n = int(o) // the first one is of all, unless there is one for each
			}
			costs++
		}
	}
	return a
}

// check returns an error unless the options of a call fit the parts.
func check(parts []Part, opts []CallOption) error {
	var costs, limits, most int
	for _, o := range opts {
		switch o.(type) {
		case Limit:
			limits++
		case AtMost:
			most++
		case Cost:
			costs++
		}
	}
	switch {
	case most > 1 || most > 0 && costs > 0:
		return invalid("costs", most+costs, "must be one AtMost and no Cost, or no AtMost")
	case costs > 1 && costs != len(parts):
		return invalidCosts(costs, len(parts))
	case limits > 0 && limits != len(parts):
		return invalid("limits", limits, "must be none, or one for each of %d parts; the zero Limit is the part's own", len(parts))
	}
	return nil
}

// fewer reports whether fewer units will do than the options ask for.
func fewer(opts []CallOption) bool {
	for _, o := range opts {
		if _, ok := o.(AtMost); ok {
			return true
		}
	}
	return false
}

// invalidCosts is the error of as many costs.
func invalidCosts(costs, parts int) error {
	return invalid("costs", costs, "must be one for all parts, or one for each of %d", parts)
}

// MultiResult is the decision of a Multi.
type MultiResult struct {
	// Result is that of all: Allowed if all are, with the longest RetryAfter of
	// those that denied, the longest Delay and ResetAfter, and the least
	// Remaining. Limit and Source are those of the part with that RetryAfter, or,
	// when allowed, with that Remaining.
	Result
	// Denied names the part that denied with the longest RetryAfter. It is empty
	// when the request is allowed.
	Denied string
	// Parts are those that were asked, in order. When the request is denied, none
	// of them was charged, and those that are Allowed had room for it.
	Parts []PartResult
}

// PartResult is the decision of one part.
type PartResult struct {
	Name string
	Result
}

// ofPart names the part in an error.
func ofPart(name string, err error) error {
	if name == "" || err == nil {
		return err
	}
	return fmt.Errorf("part %q: %w", name, err)
}
