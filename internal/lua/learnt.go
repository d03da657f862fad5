package lua

import "fmt"

// learntFields is how many numbers a quota has.
const learntFields = 7

// LearntQuota is what is learnt of one quota of a server. Times are in µs.
type LearntQuota struct {
	Name   int64 // a hash
	Limit  int64
	Window int64
	// Stretch is by how much the window is longer than it was said, in thousandths, because
	// the server has rejected; Cut is for how long that has been so.
	Stretch, Cut int64
	// Taken is how much of the limit others have for another Left.
	Taken, Left int64
}

// Learnt writes under Key what is learnt of its quotas, to live for Life ms, or with a Life of
// 0 reads it.
type Learnt struct {
	Now    int64
	Key    string
	Life   int64
	Quotas []LearntQuota

	Out []LearntQuota
}

func (l *Learnt) request(*Clock) (*Script, *wire, bool) {
	w := wireOf(l.Key, l.Now, l.Life)
	if l.Life > 0 {
		for _, q := range l.Quotas {
			w.args = append(w.args, q.Name, q.Limit, q.Window, q.Stretch, q.Cut, q.Taken, q.Left)
		}
	}
	return learntScript, w, false
}

func (l *Learnt) reply(v []int64) error {
	if len(v)%learntFields != 0 {
		return &ReplyError{fmt.Sprintf("learnt %v", v)}
	}
	l.Out = l.Out[:0]
	for ; len(v) > 0; v = v[learntFields:] {
		q := LearntQuota{v[0], v[1], v[2], v[3], v[4], v[5], v[6]}
		if !exact(v[1:learntFields]...) {
			return &ReplyError{fmt.Sprintf("learnt %v", q)}
		}
		l.Out = append(l.Out, q)
	}
	return nil
}
