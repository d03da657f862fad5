package limiter

// CallOption is an option of Allow, Wait and Reserve: a Cost, an AtMost, or a Limit, which
// decides this call in place of the limiter's own: a tier, or a limit that changes at run time.
// For a Limiter the last one of a kind holds, and AtMost and Cost are of one kind. For a Multi a
// Cost and a Limit may be given for each part, in the order of the parts. The zero Limit is the
// limiter's own.
//
// The state of the key is kept where that is meaningful: what was used stays used, and a
// smaller limit admits what it has beyond that. A window of another length, and another
// algorithm, start afresh.
type CallOption interface{ ofCall() }

// Cost is how many units a call asks for; without it 1. 0 is Peek.
type Cost int

// AtMost asks for as many units as there is room for, up to that many: also for more than the
// limit ever admits at once, of which it admits its burst. Result.Admitted says how many they
// are. The call is denied when there is no room for one unit; RetryAfter is then that of one
// unit, and Wait waits for one. Of a Multi it is the same number for each part.
//
// It takes one call to Redis where there is room for all, and else up to three, within one
// budget. When others take units at the same time, fewer may be admitted than there were. Of a key that is
// split by WithKeyShards it takes units of one part.
type AtMost int

func (Cost) ofCall()   {}
func (AtMost) ofCall() {}
func (Limit) ofCall()  {}

// call is what the options of a call to a Limiter ask for.
type call struct {
	limit Limit
	n     int
	fewer bool // AtMost: fewer than n will do, but not none
}

// with makes c, which is empty, what options ask for.
func (c *call) with(opts []CallOption) {
	c.n = 1
	for _, o := range opts {
		switch o := o.(type) {
		case Limit:
			c.limit = o
		case Cost:
			c.n, c.fewer = int(o), false
		case AtMost:
			c.n, c.fewer = int(o), true
		}
	}
}

// least is the fewest units for which the call is admitted.
func (c *call) least() int {
	if c.fewer {
		return min(c.n, 1)
	}
	return c.n
}

// within is how many units of the call s can admit at once: all, or, where they will do, fewer.
func (c *call) within(s *spec) int {
	if c.fewer {
		return int(min(int64(c.n), s.mostAtOnce()))
	}
	return c.n
}

// maxTries is how often AtMost asks.
const maxTries = 3

// next returns how many units to ask for after so many tries, of which the last one was for n
// units and found room for remaining.
func next(tries, n, remaining int) int {
	if tries >= maxTries-1 {
		return 1
	}
	return max(1, min(n-1, remaining))
}
