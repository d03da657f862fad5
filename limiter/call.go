package limiter

// CallOption is an option of one call.
type CallOption struct{ limit Limit }

// UseLimit decides this call by another limit than the limiter's own: a tier, or
// a limit that changes at run time. The zero value is the limiter's own. The state of the
// key is kept where that is meaningful: counts and tokens stay, and a smaller burst cuts
// them off. A window of another length, and another algorithm, start afresh.
func UseLimit(l Limit) CallOption { return CallOption{limit: l} }

// AllowOption is an option of Allow: a CallOption or a Cost.
type AllowOption interface{ forAllow() }

// Cost is how many units a call of Allow asks for; without it 1. 0 is Peek.
type Cost int

func (CallOption) forAllow() {}
func (Cost) forAllow()       {}

// limitOf returns the limit of a call; the last option wins.
func limitOf(opts []CallOption) (l Limit) {
	if len(opts) > 0 {
		l = opts[len(opts)-1].limit
	}
	return l
}

// allowed returns the limit and the cost of a call of Allow.
func allowed(opts []AllowOption) (l Limit, n int) {
	n = 1
	for _, o := range opts {
		switch o := o.(type) {
		case CallOption:
			l = o.limit
		case Cost:
			n = int(o)
		}
	}
	return l, n
}
