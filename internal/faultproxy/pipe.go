package faultproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// maxQueued bounds what one direction keeps while it is delayed, in bytes. Then
// the sender is slowed down, as by a network's full buffers.
const maxQueued = 8 << 20

// coarse is how exact timers are.
const coarse = 1100 * time.Microsecond

// chunk is what was read at once. It ends the stream if end is set: io.EOF is
// the sender's orderly end, anything else a broken connection.
type chunk struct {
	data []byte
	end  error
	came time.Time
	due  time.Time // at a bounded speed, when the next piece has been carried
	gen  int       // the generation for which due holds
}

// pipe is one direction of a link. Reading goes on while earlier chunks wait, so
// that a delay costs latency and not bandwidth.
type pipe struct {
	rules    *rules
	l        *link
	dir      int
	src, dst *net.TCPConn

	mu     sync.Mutex
	queue  []*chunk
	queued int
	more   chan struct{} // signals the writer: the queue has grown
	less   chan struct{} // signals the reader: the queue has shrunk

	sent, gen int // bytes delivered in the generation; only the writer's
}

func newPipe(r *rules, l *link, dir int, src, dst *net.TCPConn) *pipe {
	return &pipe{rules: r, l: l, dir: dir, src: src, dst: dst, more: make(chan struct{}, 1), less: make(chan struct{}, 1)}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (w *pipe) read() {
	buf := make([]byte, 32<<10)
	for {
		n, err := w.src.Read(buf)
		if n > 0 && !w.push(&chunk{data: append([]byte(nil), buf[:n]...)}) {
			return
		}
		if err != nil {
			w.push(&chunk{end: err})
			return
		}
	}
}

// push queues a chunk when there is room; it is false once the link has ended.
func (w *pipe) push(c *chunk) bool {
	c.came = time.Now()
	for {
		w.mu.Lock()
		if w.queued < maxQueued {
			w.queue = append(w.queue, c)
			w.queued += len(c.data)
			w.mu.Unlock()
			signal(w.more)
			return true
		}
		w.mu.Unlock()
		select {
		case <-w.less:
		case <-w.l.done:
			return false
		}
	}
}

func (w *pipe) pop() *chunk {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return nil
	}
	c := w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	w.queued -= len(c.data)
	signal(w.less)
	return c
}

func (w *pipe) write() {
	for {
		c := w.pop()
		if c == nil {
			select {
			case <-w.more:
				continue
			case <-w.l.done:
				return
			}
		}
		for {
			s := w.step(c)
			if s.finished {
				break
			}
			if !w.wait(s) {
				return
			}
		}
		if c.end != nil {
			return
		}
	}
}

// step is what came of a chunk: it is finished, or has to be tried again after a
// wait, or as soon as the mode has changed.
type step struct {
	finished bool
	wait     time.Duration
	changed  <-chan struct{}
}

func (w *pipe) wait(s step) bool {
	if s.wait <= 0 {
		return true
	}
	// Timers of an idle program are up to a millisecond late: the last one is slept through.
	if s.wait <= coarse {
		nap(s.wait)
		return true
	}
	timer := time.NewTimer(s.wait - coarse)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.changed:
	case <-w.l.done:
		return false
	}
	return true
}

// step does with a chunk what the mode says, under the lock that keeps the mode.
func (w *pipe) step(c *chunk) step {
	r := w.rules
	r.mu.RLock()
	defer r.mu.RUnlock()
	m, isReply := r.mode, w.dir == replies
	if w.gen != r.generation {
		w.gen, w.sent = r.generation, 0
	}
	if m.swallows(isReply) {
		w.swallow(c)
		return step{finished: true}
	}
	if d := m.delay(isReply) - time.Since(c.came); d > 0 {
		return step{wait: d, changed: r.changed}
	}
	if c.end != nil {
		w.finish(c.end)
		return step{finished: true}
	}
	n := len(c.data)
	if isReply && m.CutAfter > 0 {
		n = min(n, m.CutAfter-w.sent)
	}
	if m.BytesPerSecond > 0 {
		n = min(n, m.piece())
		if d := w.pace(c, m, n); d > 0 {
			return step{wait: d, changed: r.changed}
		}
	}
	if !w.deliver(c, n) {
		w.l.reset()
		return step{finished: true}
	}
	if isReply && m.CutAfter > 0 && w.sent >= m.CutAfter {
		w.l.close()
		return step{finished: true}
	}
	return step{finished: len(c.data) == 0}
}

// swallow loses a chunk. A client that leaves takes the link along, or a long
// black hole would pile up dead connections; a server's end stays unheard.
func (w *pipe) swallow(c *chunk) {
	w.l.lost[w.dir].Store(true)
	w.rules.swallowed.Add(int64(len(c.data)))
	if c.end != nil && w.dir == requests {
		w.l.close()
	}
}

// finish passes a sender's end on.
func (w *pipe) finish(end error) {
	if errors.Is(end, io.EOF) {
		_ = w.dst.CloseWrite()
		return
	}
	w.l.reset()
}

// pace says how long the next piece takes from now, at the speed all
// connections share.
func (w *pipe) pace(c *chunk, m Mode, n int) time.Duration {
	now := time.Now()
	if c.due.IsZero() || c.gen != w.gen {
		r := w.rules
		r.pacing.Lock()
		from := r.free[w.dir]
		if from.Before(now) {
			from = now
		}
		c.due, c.gen = from.Add(m.cost(n)), w.gen
		r.free[w.dir] = c.due
		r.pacing.Unlock()
	}
	return c.due.Sub(now)
}

// deliver writes up to n bytes of a chunk, and is false when that can't be done
// any more. A receiver that doesn't read must not keep Set waiting: after a
// moment the rest is left for the next step.
func (w *pipe) deliver(c *chunk, n int) bool {
	if err := w.dst.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		return false
	}
	n, err := w.dst.Write(c.data[:n])
	c.data, c.due = c.data[n:], time.Time{}
	w.sent += n
	w.rules.delivered[w.dir].Add(int64(n))
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}
