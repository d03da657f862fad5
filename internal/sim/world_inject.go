package sim

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// layers are the values that faults have set which are not over, of which the last one counts: one that ends ends no other.
type layers[T comparable] struct {
	mu sync.Mutex
	of map[*T][]T
}

func (l *layers[T]) put(at *T, v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[*T][]T{}
	}
	l.of[at] = append(l.of[at], v)
	*at = v
}

func (l *layers[T]) take(at *T, v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.of[at]
	if i := slices.Index(all, v); i >= 0 { // not where what it was set of was gone
		all = slices.Delete(all, i, i+1)
		l.of[at] = all
	}
	var none T
	if *at = none; len(all) > 0 {
		*at = all[len(all)-1]
	}
}

// inject lets a fault happen.
func (w *World) inject(f Fault, rng *rand.Rand) {
	w.net.instants.sleep(f.At + time.Duration(rng.Int64N(1000)))
	w.ledger.fault("%v", f)
	of := f.Of
	if of == nil { // those that join meanwhile, too
		for i := range w.Plan.Processes + len(w.Joins) {
			of = append(of, i)
		}
	}
	servers := w.on(f)
	addrs := addressesOf(servers)
	paths := func(change func(*Path)) {
		for _, addr := range addrs {
			for _, i := range of {
				w.net.set(nameOf(i), addr, change)
			}
		}
	}
	each := func(do func(*Server)) {
		for _, s := range servers {
			do(s)
		}
	}
	healths := func(change func(*Health)) { each(func(s *Server) { s.set(change) }) }
	cut := func(of func(*Path) *bool) (end func()) {
		paths(func(p *Path) { w.flags.put(of(p), true) })
		return func() { paths(func(p *Path) { w.flags.take(of(p), true) }) }
	}
	ill := func(of func(*Health) *bool) (end func()) {
		healths(func(h *Health) { w.flags.put(of(h), true) })
		return func() { healths(func(h *Health) { w.flags.take(of(h), true) }) }
	}
	answer := func(of func(*Health) *string) (end func()) {
		healths(func(h *Health) { w.texts.put(of(h), f.Text) })
		return func() { healths(func(h *Health) { w.texts.take(of(h), f.Text) }) }
	}
	end := func() {}
	switch f.Kind {
	case Refused:
		end = cut(func(p *Path) *bool { return &p.Refused })
	case BlackHole:
		end = cut(func(p *Path) *bool { return &p.Lost })
	case RepliesLost:
		end = cut(func(p *Path) *bool { return &p.RepliesLost })
	case Far:
		paths(func(p *Path) { p.Delay += f.By; p.Jitter += f.By / 2 })
		end = func() { paths(func(p *Path) { p.Delay -= f.By; p.Jitter -= f.By / 2 }) }
	case Narrow:
		paths(func(p *Path) { p.PerKiB += f.By })
		end = func() { paths(func(p *Path) { p.PerKiB -= f.By }) }
	case Reset: // again and again: only what is on its way then matters
		n := 1 + rng.IntN(30)
		for range n {
			cut(func(p *Path) *bool { return &p.Refused })()
			w.net.instants.sleep(f.For / time.Duration(n))
		}
		f.For = 0
	case Frozen:
		end = ill(func(h *Health) *bool { return &h.Frozen })
	case Sluggish:
		healths(func(h *Health) { h.Slow += f.By })
		end = func() { healths(func(h *Health) { h.Slow -= f.By }) }
	case Rejecting:
		end = answer(func(h *Health) *string { return &h.Rejects })
	case RejectingWrites:
		end = answer(func(h *Health) *string { return &h.RejectsWrites })
	case Restarted, RestartedEmpty:
		up := ill(func(h *Health) *bool { return &h.Down })
		each((*Server).crash)
		end = func() {
			if f.Kind == RestartedEmpty {
				each(func(s *Server) { s.lose(func(string) bool { return true }) })
			}
			each((*Server).forgetScripts)
			up()
		}
	case FailedOver:
		each((*Server).save)
		end = func() { each((*Server).failOver) }
		if w.Shape == Sentinel {
			f.For -= f.By
		}
		if w.Shape.replicated() { // the replica is elected for half of the time
			w.net.instants.sleep(f.For / 2)
			f.For -= f.For / 2
			up := ill(func(h *Health) *bool { return &h.Down })
			each((*Server).crash)
			end = func() {
				each((*Server).failOver)
				up()
				for _, s := range w.sentinels {
					s.notice(f.By)
				}
				if w.Shape == Sentinel {
					w.net.instants.sleep(f.By)
				}
			}
		}
	case Flushed:
		each(func(s *Server) { s.lose(func(string) bool { return true }) })
	case Evicted:
		each(func(s *Server) { s.lose(func(string) bool { return rng.IntN(3) == 0 }) })
	case ScriptsForgotten:
		each((*Server).forgetScripts)
	case ClockSteps:
		w.ledger.clockStepped()
		each(func(s *Server) { s.step(f.By) })
	case ClockDrifts:
		w.ledger.clockDrifts(f)
		each(func(s *Server) { s.drift(f.By) })
		end = func() { each(func(s *Server) { s.drift(-f.By) }) }
	case Paused:
		end = cut(func(p *Path) *bool { return &p.Lost })
		for _, i := range of {
			thaw := &w.processes[i].thaw
			thaw.Store(max(thaw.Load(), int64(w.now()+f.For)))
		}
	case SentinelsReject:
		addrs = nil
		for _, i := range rng.Perm(len(w.sentinels))[:1+rng.IntN(len(w.sentinels))] {
			addrs = append(addrs, w.sentinels[i].addr)
		}
		end = cut(func(p *Path) *bool { return &p.Refused })
	case Migrated:
		w.migrate(w.servers[f.On], f.For, rng)
		f.For = 0
	}
	w.net.instants.sleep(f.For)
	w.remembered()
	end()
	w.ledger.fault("over: %v", f)
}
