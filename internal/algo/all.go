package algo

// Ask is one of several limits that a request needs.
type Ask struct {
	Params Params
	State  *State
	N      int64
}

// StepAll decides a request that needs all of several limits, each with a state of
// its own: all of them are charged, or none. A decision that is Allowed says that
// its limit had room, charged or not; Remaining is what it has now. It reports
// whether all had room.
func StepAll(asks []Ask, now int64) ([]Decision, bool) {
	out := make([]Decision, len(asks))
	all := true
	for i, a := range asks {
		dry := a.State.clone()
		out[i] = Decide(a.Params, &dry, now, a.N)
		all = all && out[i].Allowed
	}
	for i, a := range asks {
		if all || !out[i].Allowed {
			out[i] = Decide(a.Params, a.State, now, a.N)
			continue
		}
		peek := Decide(a.Params, a.State, now, 0)
		out[i].Remaining, out[i].ResetAfter, out[i].Delay = peek.Remaining, peek.ResetAfter, 0
	}
	return out, all
}
