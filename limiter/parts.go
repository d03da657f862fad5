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

// Ask is what one part of a Multi is asked for: N units of Key. N may be 0.
type Ask struct {
	Key string
	N   int
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
