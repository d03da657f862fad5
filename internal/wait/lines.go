package wait

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/random"
)

// Waiter is one who waits. Its methods are called on its own goroutine, outside of locks.
type Waiter interface {
	// Ask asks whether it may go now.
	Ask() (Answer, error)
	// Queue is called when it stands behind others, which wait for so many units, and again when these
	// have become more, as others that arrived sooner stand in line later. The first of them asks after
	// that time at the earliest.
	Queue(ahead int, after time.Duration) error
	// Sleep returns after d, or when called has a value; only then if d is below 0.
	Sleep(d time.Duration, called <-chan struct{}) error
}

// Answer is the answer to Ask.
type Answer struct {
	Go bool
	// After is above 0 and says when to ask again, if it may not go. If it may go, After says
	// when the others may ask that do not fit into Room.
	After time.Duration
	// Over is above 0 when a pause ends for many at once: the waiters of the line then leave
	// it evenly over that time.
	Over time.Duration
	// Most is the longest time that this waiter can wait, jitter included.
	Most time.Duration
	// Room is how much more there is for others, if it may go.
	Room int
	// Own says that After is no answer for others, whatever they ask for.
	Own bool
	// Least is the time that it takes at least, where it is to ask again before: newcomers whose
	// deadline is sooner need not stand in line.
	Least time.Duration
	// Aside says that what it waits for is not what the others wait for, who need not wait for it:
	// it leaves the line until it asks again.
	Aside bool
}

// localPause is the longest that a line waits for what a process decides in the place of Redis,
// which may be back sooner.
const localPause = time.Second

// InPlaceOfRedis cuts the pause of a denial that this process decided in the place of Redis.
func (a *Answer) InPlaceOfRedis() {
	a.After = min(a.After, localPause)
	a.Over = min(a.Over, localPause-a.After)
}

// Lines holds a line for each key that has waiters: the critical ones first, each by their
// arrival. The first one asks for the line, until it may go; the others sleep. When
// an answer says that there is room for more of them, those ask at once. To arrive and to
// leave takes as long in a line of ten thousand as in one of two. A key without
// waiters takes no space. It is safe for concurrent use; the zero value is ready for use.
type Lines[K comparable] struct {
	n     atomic.Int64  // lines
	calls atomic.Uint64 // how often lines were called
	came  atomic.Uint64 // how many arrived
	mu    sync.Mutex
	m     map[K]*line
}

// Wait waits until w may go, for n units of key. A waiter that finds no line asks before it
// stands in one. The error is that of w which ended the wait.
func (ls *Lines[K]) Wait(key K, n int, critical bool, w Waiter) error {
	ahead := ls.Look(key, critical)
	var a Answer
	if !ahead.Any {
		var err error
		if a, err = w.Ask(); err != nil || a.Go {
			return err
		}
	}
	return ls.Stand(key, n, critical, ahead, a, w)
}

// Ahead says whether a newcomer found others who wait.
type Ahead struct {
	Any   bool
	calls uint64
	came  uint64 // by which it is in turn
}

// Stand is the rest of Wait, for a waiter that has asked if there was no line.
func (ls *Lines[K]) Stand(key K, n int, critical bool, ahead Ahead, a Answer, w Waiter) error {
	p := &place{n: n, critical: critical, came: ahead.came, called: make(chan struct{}, 1)}
	ls.join(key, p)
	defer ls.leave(key, p) // also when a hook panics
	for asked, stale := !ahead.Any, ahead.calls != ls.calls.Load(); ; asked, stale = false, false {
		if !asked {
			err := ls.turn(p, w)
			if err != nil {
				return err
			}
			if a, err = w.Ask(); err != nil {
				return err
			}
		}
		switch {
		case a.Go:
			p.goes, p.answer = true, a
			return nil
		case a.Aside:
			ls.leave(key, p)
			if err := w.Sleep(a.After, nil); err != nil {
				return err
			}
			ls.join(key, p)
			continue
		}
		ls.denied(p, a, stale)
	}
}

// turn waits until p may ask.
func (ls *Lines[K]) turn(p *place, w Waiter) error {
	for {
		if units, after, ok := ls.behind(p); ok {
			if err := w.Queue(units, after); err != nil {
				return err
			}
		}
		d := ls.due(p)
		if d == 0 {
			return nil
		}
		if err := w.Sleep(d, p.called); err != nil {
			return err
		}
	}
}

// behind returns what p stands behind, if that has become more: for how many units others wait, and
// after what time the first of them asks at the earliest.
func (ls *Lines[K]) behind(p *place) (units int, after time.Duration, ok bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := p.line
	first, more := l.first(), p.check
	if p.check = false; !more || p == first {
		return 0, 0, false
	}
	after = max(0, time.Until(l.until(first)))
	if l.denial.of == first {
		after = max(after, time.Until(l.denial.least))
	}
	return p.units, after, true
}

// Call lets the first one of those lines ask now, also if it is asking: there may be more than
// its last answer said.
func (ls *Lines[K]) Call(those func(K) bool) {
	ls.calls.Add(1)
	if ls.n.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for key, l := range ls.m {
		if those(key) {
			l.call()
		}
	}
}

// Look notes the arrival of a newcomer to the line of key.
func (ls *Lines[K]) Look(key K, critical bool) (ahead Ahead) {
	ahead.calls, ahead.came = ls.calls.Load(), ls.came.Add(1)
	if ls.n.Load() == 0 {
		return ahead
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.m[key]
	ahead.Any = l != nil && (!critical || l.ranks[0].places.Len() > 0)
	return ahead
}

// join puts p into a line by its arrival.
func (ls *Lines[K]) join(key K, p *place) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.m[key]
	if l == nil {
		l = &line{room: unknown}
		if ls.m == nil {
			ls.m = make(map[K]*line)
		}
		ls.m[key] = l
		ls.n.Add(1)
	}
	p.line, p.calls = l, l.calls
	was := l.first()
	l.add(p)
	if l.first() == p {
		if was != nil && was.turn {
			l.take(was)
		}
		p.turn = true
		l.turns++
	}
}

func (ls *Lines[K]) leave(key K, p *place) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := p.line
	if l == nil {
		return // it stepped aside
	}
	p.line, p.now = nil, false
	l.remove(p)
	if p.turn {
		l.take(p)
		l.pass(p)
	}
	if l.denial.of == p {
		l.denial.of = nil
	}
	if p.goes {
		l.went(p.answer)
	}
	if l.len == 0 {
		delete(ls.m, key)
		ls.n.Add(-1)
		return
	}
	l.next()
}

// due returns 0 if it is p's turn to ask, or in how long it will be; below 0 is when
// it is called.
func (ls *Lines[K]) due(p *place) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	d := ls.dueLocked(p)
	if d == 0 {
		p.up = false
		p.line.pass(p)
	}
	return d
}

func (ls *Lines[K]) dueLocked(p *place) time.Duration {
	switch {
	case !p.turn:
		return -1
	case p.now:
		p.calls = p.line.calls
		return 0
	}
	l := p.line
	p.calls = l.calls
	if now := time.Now(); l.over > 0 && !now.Before(l.until(p)) {
		// Other processes come back at the same time.
		jitter := l.over / time.Duration(l.len)
		if l.over = 0; l.most.After(now) {
			jitter = min(jitter, l.most.Sub(now))
		}
		l.free = now.Add(random.Below(jitter + 1))
	}
	return max(0, time.Until(l.until(p)))
}

// denied notes an answer that denies p. It asks again at once if the line was called since it
// asked, or if stale says so.
func (ls *Lines[K]) denied(p *place, a Answer, stale bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := p.line
	p.now = false
	if l.first() != p {
		if p.turn {
			l.take(p)
		}
		l.room = 0
		l.next()
		return
	}
	l.room = unknown
	l.tell()
	if stale || p.calls != l.calls {
		l.denial = denial{}
		return
	}
	now := time.Now()
	l.denial = denial{at: now.Add(a.After), least: now.Add(a.Least), of: p, n: p.n, critical: p.critical}
	if a.Own {
		l.denial.n = 0
	}
	if a.Over > 0 {
		l.calm, l.over, l.most = l.denial.at.Add(a.Over), a.Over, now.Add(a.Most)
	}
}

// line is the line of one key. Lines.mu is held.
type line struct {
	ranks  [2]rank // the critical ones, and the others
	len    int
	turns  int  // how many may ask, or do so
	room   int  // the least that answers have left since the turns were given; or unknown
	passed bool // some stand before others who stood in line sooner
	denial denial
	calls  uint64 // how often it was called
	// Until calm, those who leave are spread, and none asks before free.
	calm, free time.Time
	over       time.Duration // between the two pauses, or 0
	most       time.Time     // by which the first one must ask
}

const unknown = -1

// rank is a part of a line, in which places are by arrival.
type rank struct {
	places list.List // of *place
	units  int
}

// denial is the last answer that the first one received. Others are denied, too, if they
// ask for at least n; n is 0 when nothing is known of their costs.
type denial struct {
	at       time.Time // when to ask again
	least    time.Time // before which it is denied
	of       *place    // who received it, while that one stands in line
	n        int
	critical bool
}

// place is one in a line.
type place struct {
	line     *line         // nil while it is in none
	at       *list.Element // of its rank
	n        int
	critical bool
	came     uint64
	turn     bool          // it may ask
	called   chan struct{} // has a value when that has changed
	now      bool          // without a pause
	up       bool          // it was called to ask at once, and does not yet
	then     *place        // which is called when this one asks, in the same room
	units    int           // for which others wait before it, at most
	check    bool          // it has not seen that
	calls    uint64        // of the line, when it asked last
	goes     bool          // it leaves because it may go
	answer   Answer        // by this one
}

func (p *place) call() {
	select {
	case p.called <- struct{}{}:
	default:
	}
}

func (l *line) rank(p *place) *rank {
	if p.critical {
		return &l.ranks[0]
	}
	return &l.ranks[1]
}

func (l *line) first() *place {
	for i := range l.ranks {
		if e := l.ranks[i].places.Front(); e != nil {
			return e.Value.(*place)
		}
	}
	return nil
}

func (l *line) add(p *place) {
	r := l.rank(p)
	p.check, p.units = true, l.ranks[0].units
	if !p.critical {
		p.units += l.ranks[1].units
	}
	// Behind it are those that arrived later: all, if it stepped aside; else those few whose first
	// answer came sooner.
	before := r.places.Back()
	if e := r.places.Front(); e != nil && e.Value.(*place).came > p.came {
		before = nil
		p.units -= r.units
	}
	for before != nil && before.Value.(*place).came > p.came {
		p.units -= before.Value.(*place).n
		before = before.Prev()
	}
	if before == nil {
		p.at = r.places.PushFront(p)
	} else {
		p.at = r.places.InsertAfter(p, before)
	}
	r.units += p.n
	l.len++
	l.passed = l.passed || p.at.Next() != nil || p.critical && l.ranks[1].units > 0
}

// tell calls the places that have more before them than they know.
func (l *line) tell() {
	if !l.passed {
		return
	}
	l.passed = false
	units := 0
	for i := range l.ranks {
		for e := l.ranks[i].places.Front(); e != nil; e = e.Next() {
			p := e.Value.(*place)
			if units > p.units {
				p.units, p.check = units, true
				p.call()
			}
			units += p.n
		}
	}
}

func (l *line) remove(p *place) {
	r := l.rank(p)
	r.places.Remove(p.at)
	r.units -= p.n
	l.len--
}

func (l *line) give(p *place) {
	p.turn = true
	l.turns++
	p.call()
}

func (l *line) take(p *place) {
	p.turn = false
	l.turns--
}

// went notes that one of the line went, by an answer.
func (l *line) went(a Answer) {
	l.tell()
	l.denial = denial{}
	now := time.Now()
	if l.free.After(now) {
		return // it went with others, in the room that an answer before had left
	}
	if l.room == unknown {
		l.room = a.Room
	}
	l.room = min(l.room, a.Room)
	if a.After > 0 {
		l.free = now.Add(a.After)
	}
	if left := l.calm.Sub(now); left > 0 && l.len > 0 {
		l.free, l.room = now.Add(left/time.Duration(l.len)), unknown
	}
}

// next lets the first waiter ask. When no other one is asking, it also lets those behind it
// ask at once that fit into the room that the last answer left.
func (l *line) next() {
	p := l.first()
	had := p.turn
	if !had {
		l.give(p)
	}
	if l.turns > 1 || l.room == unknown {
		return
	}
	room := l.room
	l.room = unknown
	var before *place
	for e := p.at; e != nil; e = e.Next() {
		if p = e.Value.(*place); max(1, p.n) > room {
			return
		}
		room -= p.n
		switch {
		case had && p == l.first() && !p.up:
			p.now = true // perhaps it asks already; else it need not wait any more
			p.call()
			continue
		case before != nil:
			before.then = p
		case !p.up:
			l.begin(p)
		}
		before = p
	}
}

// begin lets p ask at once.
func (l *line) begin(p *place) {
	p.now, p.up = true, true
	if p.turn {
		p.call()
	} else {
		l.give(p)
	}
}

// pass lets the one behind p ask that fits into the same room. Each begins when the one before it does, so that they
// ask by their arrival: there may be less room than the answer said, as in the claim of a process, or when others took some.
func (l *line) pass(p *place) {
	q := p.then
	for p.then = nil; q != nil && q.line == nil; {
		q = q.then
	}
	if q != nil {
		l.begin(q)
	}
}

// until returns when p need not ask before, if it is the first.
func (l *line) until(p *place) time.Time {
	d := l.denial
	if holds := d.of == p || d.n > 0 && p.n >= d.n && (d.critical || !p.critical); holds && d.at.After(l.free) {
		return d.at
	}
	return l.free
}

// call lets the first one ask, whatever its last answer says.
func (l *line) call() {
	l.calls++
	l.denial, l.calm, l.free, l.over = denial{}, time.Time{}, time.Time{}, 0
	l.first().call()
}
