package limiter

// CallOption is an option of Allow and Wait: a Cost, or a Limit, which decides this call in
// place of the limiter's own: a tier, or a limit that changes at run time. Of several, the
// last one of a kind holds, and the zero Limit is the limiter's own.
//
// The state of the key is kept where that is meaningful: counts and tokens stay, and a
// smaller burst cuts them off. A window of another length, and another algorithm, start
// afresh.
type CallOption interface{ ofCall() }

// Cost is how many units a call asks for; without it 1. 0 is Peek.
type Cost int

func (Cost) ofCall()  {}
func (Limit) ofCall() {}

// costOf returns the limit and the cost of a call.
func costOf(opts []CallOption) (l Limit, n int) {
	n = 1
	for _, o := range opts {
		switch o := o.(type) {
		case Limit:
			l = o
		case Cost:
			n = int(o)
		}
	}
	return l, n
}
