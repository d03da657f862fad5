package sim

import (
	"math/rand/v2"
	"time"
)

// inject lets a fault happen.
func (w *World) inject(f Fault, rng *rand.Rand) {
	time.Sleep(f.At + time.Duration(rng.Int64N(1000)))
	s := w.servers[0]
	w.ledger.fault("%v", f)
	of := f.Of
	if of == nil {
		for i := range w.Processes {
			of = append(of, i)
		}
	}
	paths := func(change func(*Path)) {
		for _, i := range of {
			w.net.set(w.processes[i].name, s.addr, change)
		}
	}
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
	case Reset:
		paths(func(p *Path) { p.Refused = true })
		paths(func(p *Path) { p.Refused = false })
	case Frozen:
		s.set(func(h *Health) { h.Frozen = true })
		end = func() { s.set(func(h *Health) { h.Frozen = false }) }
	case Sluggish:
		s.set(func(h *Health) { h.Slow += f.By })
		end = func() { s.set(func(h *Health) { h.Slow -= f.By }) }
	case Rejecting:
		s.set(func(h *Health) { h.Rejects = f.Text })
		end = func() { s.set(func(h *Health) { h.Rejects = "" }) }
	case RejectingWrites:
		s.set(func(h *Health) { h.RejectsWrites = f.Text })
		end = func() { s.set(func(h *Health) { h.RejectsWrites = "" }) }
	case Restarted, RestartedEmpty:
		s.set(func(h *Health) { h.Down = true })
		s.crash()
		end = func() {
			if f.Kind == RestartedEmpty {
				s.lose(func(string) bool { return true })
			}
			s.forgetScripts()
			s.set(func(h *Health) { h.Down = false })
		}
	case FailedOver:
		s.save()
		end = func() {
			s.crash()
			s.restore()
		}
	case Flushed:
		s.lose(func(string) bool { return true })
	case Evicted:
		s.lose(func(string) bool { return rng.IntN(3) == 0 })
	case ScriptsForgotten:
		s.forgetScripts()
	case ClockSteps:
		w.ledger.clockStepped()
		s.step(f.By)
	}
	time.Sleep(f.For)
	end()
	w.ledger.fault("over: %v", f)
}
