package limiter

import "fmt"

// Part is one limit of a Multi.
type Part struct {
	// Name tells the parts of a Multi apart, in results and in errors.
	Name string
	// Limiter decides. Parts that keep their state in the same Redis need
	// prefixes of their own: see WithPrefix.
	Limiter *Limiter
	// Key makes the part's key of the one that the Multi is asked for, as in
	// "the tenant of this user". Nil is the key itself, and so is an empty one.
	Key func(key string) string
}

// ask is what a part is asked for.
type ask struct {
	key string
	n   int
}

// of returns what the i-th part is asked for.
func (p *Part) of(key string, cost []Cost, i int) ask {
	if p.Key != nil && key != "" {
		key = p.Key(key)
	}
	return ask{key, costAt(cost, i)}
}

// costAt returns the cost for the i-th part: 1 unless there is one for all or one for each.
func costAt(cost []Cost, i int) int {
	switch len(cost) {
	case 0:
		return 1
	case 1:
		return int(cost[0])
	default:
		return int(cost[i])
	}
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
func ofPart(name string, err error) error { return fmt.Errorf("part %q: %w", name, err) }
