package inprocess

import "container/heap"

// idleHeap orders entries by the time at which forgetting them costs nothing.
// Every decision moves that time, but only later, so an entry is moved only
// when it comes to the top: deciding never touches the heap.
type idleHeap []*entry

// idleAt returns an entry that is idle at now, or nil when none is. Afterwards
// that entry is at the top.
func (h *idleHeap) idleAt(now int64) *entry {
	for len(*h) > 0 && (*h)[0].rank <= now {
		top := (*h)[0]
		if top.idleAt <= now {
			return top
		}
		top.rank = top.idleAt
		heap.Fix((*heapItems)(h), 0)
	}
	return nil
}

func (h *idleHeap) push(e *entry) { heap.Push((*heapItems)(h), e) }
func (h *idleHeap) pop()          { heap.Pop((*heapItems)(h)) }

// lower puts an entry whose idle time has moved to an earlier one in order.
func (h *idleHeap) lower(e *entry) {
	e.rank = e.idleAt
	for i, other := range *h {
		if other == e {
			heap.Fix((*heapItems)(h), i)
			return
		}
	}
}

// heapItems keeps the methods that container/heap needs off idleHeap.
type heapItems []*entry

func (h heapItems) Len() int           { return len(h) }
func (h heapItems) Less(i, j int) bool { return h[i].rank < h[j].rank }
func (h heapItems) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heapItems) Push(x any)        { *h = append(*h, x.(*entry)) }
func (h *heapItems) Pop() any {
	old := *h
	n := len(old) - 1
	e := old[n]
	old[n] = nil
	*h = old[:n]
	return e
}
