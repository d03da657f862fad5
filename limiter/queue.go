package limiter

// queue is decisions in the order in which they came. Those whose callers have
// left are skipped.
type queue struct {
	waiting []*decision
	head    int
}

func (q *queue) len() int { return len(q.waiting) - q.head }

func (q *queue) push(d *decision) {
	q.waiting = append(q.waiting, d)
}

// pop returns the first that still waits, or nil.
func (q *queue) pop() *decision {
	for q.head < len(q.waiting) {
		d := q.waiting[q.head]
		q.waiting[q.head] = nil
		q.head++
		if d.state == queued {
			return d
		}
	}
	return nil
}

// take offers the first n that wait, in order. What was not accepted keeps its
// place.
func (q *queue) take(n int, accept func(*decision) bool) {
	kept, i := 0, q.head
	for ; i < len(q.waiting) && n > 0; i++ {
		d := q.waiting[i]
		if d.state != queued {
			continue
		}
		n--
		if accept(d) {
			continue
		}
		q.waiting[kept] = d
		kept++
	}
	rest := copy(q.waiting[kept:], q.waiting[i:])
	clear(q.waiting[kept+rest:])
	q.waiting, q.head = q.waiting[:kept+rest], 0
}
