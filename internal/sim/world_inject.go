package sim

import (
	"math/rand/v2"
	"time"
)

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
	end := func() {}
	switch f.Kind {
	case Refused:
		paths(func(p *Path) { p.Refused = true })
		end = func() { paths(func(p *Path) { p.Refused = false }) }
	case BlackHole:
		paths(func(p *Path) { p.Lost = true })
		end = func() { paths(func(p *Path) { p.Lost = false }) }
	case RepliesLost:
		paths(func(p *Path) { p.RepliesLost = true })
		end = func() { paths(func(p *Path) { p.RepliesLost = false }) }
	case Far:
		paths(func(p *Path) { p.Delay += f.By; p.Jitter += f.By / 2 })
		end = func() { paths(func(p *Path) { p.Delay -= f.By; p.Jitter -= f.By / 2 }) }
	case Narrow:
		paths(func(p *Path) { p.PerKiB += f.By })
		end = func() { paths(func(p *Path) { p.PerKiB -= f.By }) }
	case Reset: // again and again: only what is on its way then matters
		n := 1 + rng.IntN(30)
		for range n {
			paths(func(p *Path) { p.Refused = true })
			paths(func(p *Path) { p.Refused = false })
			w.net.instants.sleep(f.For / time.Duration(n))
		}
		f.For = 0
	case Frozen:
		healths(func(h *Health) { h.Frozen = true })
		end = func() { healths(func(h *Health) { h.Frozen = false }) }
	case Sluggish:
		healths(func(h *Health) { h.Slow += f.By })
		end = func() { healths(func(h *Health) { h.Slow -= f.By }) }
	case Rejecting:
		healths(func(h *Health) { h.Rejects = f.Text })
		end = func() { healths(func(h *Health) { h.Rejects = "" }) }
	case RejectingWrites:
		healths(func(h *Health) { h.RejectsWrites = f.Text })
		end = func() { healths(func(h *Health) { h.RejectsWrites = "" }) }
	case Restarted, RestartedEmpty:
		healths(func(h *Health) { h.Down = true })
		each((*Server).crash)
		end = func() {
			if f.Kind == RestartedEmpty {
				each(func(s *Server) { s.lose(func(string) bool { return true }) })
			}
			each((*Server).forgetScripts)
			healths(func(h *Health) { h.Down = false })
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
			healths(func(h *Health) { h.Down = true })
			each((*Server).crash)
			end = func() {
				each((*Server).failOver)
				healths(func(h *Health) { h.Down = false })
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
		paths(func(p *Path) { p.Lost = true })
		for _, i := range of {
			w.processes[i].thaw.Store(int64(w.now() + f.For))
		}
		end = func() { paths(func(p *Path) { p.Lost = false }) }
	case SentinelsReject:
		addrs = nil
		for _, i := range rng.Perm(len(w.sentinels))[:1+rng.IntN(len(w.sentinels))] {
			addrs = append(addrs, w.sentinels[i].addr)
		}
		paths(func(p *Path) { p.Refused = true })
		end = func() { paths(func(p *Path) { p.Refused = false }) }
	case Migrated:
		w.migrate(w.servers[f.On], f.For, rng)
		f.For = 0
	}
	w.net.instants.sleep(f.For)
	w.remembered()
	end()
	w.ledger.fault("over: %v", f)
}
