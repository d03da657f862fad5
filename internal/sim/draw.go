package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/calendar"
	"github.com/holdfast-go/holdfast/limiter"
)

// Draw draws a plan. Each fleet makes about as many decisions.
func Draw(seed uint64) Plan { return draw(seed, 12_000, 0) }

// DrawShort draws a plan of a fleet that makes a twentieth of the decisions, so that there can be
// many of them.
func DrawShort(seed uint64) Plan { return draw(seed, 600, time.Minute) }

// draw draws a plan with so many decisions, at least in least.
func draw(seed uint64, decisions float64, least time.Duration) Plan {
	rng := rand.New(rand.NewPCG(seed, 42))
	p := Plan{
		Seed: seed, Processes: 1 + rng.IntN(8), Callers: 1 + rng.IntN(4), Keys: 1 + rng.IntN(6),
		Think: between(rng, 20*time.Millisecond, 2*time.Second),
	}
	callers := float64(p.Processes * p.Callers)
	slowest := time.Duration(callers / decisions * float64(least))
	p.Think = max(p.Think, slowest)
	p.Life = min(max(time.Duration(decisions/callers*float64(p.Think)), time.Minute), time.Hour)
	p.Idle = p.Think
	episodes := 1 + int(p.Life/(5*time.Minute)) + rng.IntN(3)
	if rng.IntN(2) == 0 { // days with hours between the faults
		p.Think = max(between(rng, 200*time.Millisecond, 2*time.Second), slowest)
		p.Life = between(rng, 12*time.Hour, 10*24*time.Hour)
		p.Idle = max(between(rng, 20*time.Second, 5*time.Minute), time.Duration(callers/decisions*2*float64(p.Life)))
		episodes = 1 + int(decisions/2/callers*p.Think.Seconds()/(rushBefore+rushAfter+30*time.Second).Seconds())
		episodes = min(episodes, 1+int(p.Life/time.Hour))
	}
	if rng.IntN(2) == 0 {
		p.Looks = rng.Float64() * 0.7
	}
	p.Options.NoDenials = rng.IntN(2) == 0
	p.Limits = make([]Limit, 1+rng.IntN(3))
	// What the most used key of a limit is asked for in a second.
	keys := float64(p.Keys)
	demand := 1.4 * float64(p.Processes*p.Callers) / p.Think.Seconds() / float64(len(p.Limits)) * (1 + math.Log(keys)) / keys
	for i := range p.Limits {
		p.Limits[i] = drawLimit(rng, demand*math.Exp2(4*rng.Float64()-3))
	}
	for range rng.IntN(3) {
		p.Permits = append(p.Permits, Permits{1 + int(math.Exp2(4*rng.Float64())), between(rng, time.Second, 20*time.Second)})
	}
	for range episodes {
		p.Faults = append(p.Faults, drawEpisode(rng, p.Processes, p.Life)...)
	}
	for range rng.IntN(4) {
		at := time.Duration(rng.Int64N(int64(p.Life - 20*time.Second)))
		if f := p.Faults[rng.IntN(len(p.Faults))]; rng.IntN(2) == 0 { // near a fault
			at = min(f.At+time.Duration(rng.Float64()*float64(f.For+10*time.Second)), p.Life-20*time.Second)
		}
		p.Joins = append(p.Joins, at)
	}
	slices.Sort(p.Joins)
	for i := range rng.IntN(p.Processes) {
		p.Leaves = append(p.Leaves, Leave{time.Duration(rng.Int64N(int64(p.Life))), i, rng.IntN(2) == 0})
	}
	p.drawShape(rand.New(rand.NewPCG(seed, 43)))
	p.drawChanges(rand.New(rand.NewPCG(seed, 44)))
	p.drawRing(rand.New(rand.NewPCG(seed, 45)))
	p.drawHost(rand.New(rand.NewPCG(seed, 46)))
	p.drawSampled(rand.New(rand.NewPCG(seed, 49)))
	p.drawCalendar(rand.New(rand.NewPCG(seed, 47)), decisions)
	p.drawVaried(rand.New(rand.NewPCG(seed, 48)))
	p.drawPatience(rand.New(rand.NewPCG(seed, 54)))
	p.drawSentinels(rand.New(rand.NewPCG(seed, 50)))
	p.drawTraffic(rand.New(rand.NewPCG(seed, 51)))
	p.drawSlow(rand.New(rand.NewPCG(seed, 52)))
	if floor := rand.New(rand.NewPCG(seed, 53)); p.Host.Limit > 0 && floor.IntN(2) == 0 {
		p.Host.Floor = 0.3 * (floor.Float64() - 0.5) // half of them have none
	}
	p.Host.Says = p.Host.Limit > 0 && rand.New(rand.NewPCG(seed, 55)).IntN(2) == 0
	return p
}

// drawSentinels makes failovers and sentinels that reject connections of some faults of fleets that ask sentinels.
func (p *Plan) drawSentinels(rng *rand.Rand) {
	if p.Shape != Sentinel {
		return
	}
	for i := range p.Faults {
		f := &p.Faults[i]
		switch rng.IntN(6) {
		case 0:
			*f = Fault{Kind: SentinelsReject, At: f.At, For: f.For, Of: f.Of}
		case 1:
			*f = Fault{Kind: FailedOver, At: f.At, For: f.For}
		}
		if f.Kind == FailedOver {
			f.By = time.Duration(rng.Float64() * float64(f.For))
		}
	}
}

// drawSlow makes networks that carry little, and clocks that go wrong, of some faults.
func (p *Plan) drawSlow(rng *rand.Rand) {
	for i := range p.Faults {
		f := &p.Faults[i]
		if f.Kind == Migrated || f.Kind == SentinelsReject {
			continue
		}
		switch rng.IntN(24) {
		case 0:
			*f = Fault{Kind: Narrow, At: f.At, For: f.For, On: f.On, Of: f.Of, By: between(rng, 100*time.Microsecond, 50*time.Millisecond)}
		case 1:
			*f = Fault{Kind: ClockDrifts, At: f.At, For: f.For, On: f.On, By: time.Duration((rng.Float64()*2 - 1) * float64(20*time.Millisecond)).Round(time.Microsecond)}
			if p.Shape == WrappedCluster {
				f.On = -1 // as where clocks step
			}
		}
	}
}

// drawPatience makes callers of some fleets wait for more, or leave earlier.
func (p *Plan) drawPatience(rng *rand.Rand) {
	if rng.IntN(8) == 0 {
		p.Waits = rng.Float64()
	}
	if rng.IntN(8) == 0 {
		p.Hasty = 0.5 * rng.Float64()
	}
}

// drawCalendar makes a limit of some fleets one of a calendar, whose windows change while the
// fleet lives. Each fleet makes so many decisions.
func (p *Plan) drawCalendar(rng *rand.Rand, decisions float64) {
	if rng.IntN(4) > 0 {
		return
	}
	of, unit, name := rng.IntN(len(p.Limits)), calendar.Day+calendar.Unit(rng.IntN(4)), zones[rng.IntN(len(zones))]
	windows := 1 + p.Life.Hours()/shortest[unit].Hours()
	keys := float64(p.Keys)
	asked := 1.4 * decisions * (1 + math.Log(keys)) / keys / float64(len(p.Limits)) / windows
	was := p.Limits[of]
	l := was
	l.Unit = unit
	l.Limit = limiter.Calendar(1+int(asked*math.Exp2(4*rng.Float64()-3)), unit, zone(name))
	if l.Lease > 0 {
		l.Lease = min(l.Lease, l.Burst())
	}
	if l.most() == 0 {
		l.Lease, l.Age, l.Parts = 0, 0, 0
	}
	l.Zone = name
	p.Limits[of] = l
	for i, c := range p.Changes {
		if c.Of == of {
			n := int(float64(l.Burst()) * float64(c.To.Burst()) / float64(was.Burst()))
			to := l
			if to.Limit = limiter.Calendar(max(1, n, l.Parts), unit, zone(name)); to.most() == 0 { // less than a lease
				to.Limit = l.Limit
			}
			p.Changes[i].To = to.Limit
		}
	}
	// A window ends while the fleet lives: often one of a day on which clocks change.
	at := began.Add(time.Duration(rng.Int64N(int64(12 * 365 * 24 * time.Hour)))).In(zone(name))
	for day := range 400 {
		if from, to := calendar.Day.Window(at.AddDate(0, 0, day)); rng.IntN(2) == 0 && to.Sub(from) != 24*time.Hour {
			at = from
			break
		}
	}
	_, end := unit.Window(at)
	p.Begins = max(0, end.Sub(began)-time.Duration(rng.Float64()*float64(p.Life)))
	// Clocks of servers step by some windows: a client sends the one in which it is with those beside it.
	for i := range p.Faults {
		if f := &p.Faults[i]; rng.IntN(8) == 0 || f.Kind == ClockSteps && rng.IntN(2) == 0 {
			by := time.Duration((rng.Float64()*2 - 1) * 4 * float64(shortest[unit])).Round(time.Microsecond)
			if *f = (Fault{Kind: ClockSteps, At: f.At, For: f.For, On: f.On, By: by}); p.Shape == WrappedCluster {
				f.On = -1 // its client hides which server has answered: a process knows one clock
			}
		}
	}
}

// drawSampled lets the processes of some fleets have a sampled limiter, too.
func (p *Plan) drawSampled(rng *rand.Rand) {
	if rng.IntN(4) > 0 {
		return
	}
	busy := p.Life // for about so long they are, at most
	if p.Idle > p.Think {
		busy = min(busy, time.Duration(len(p.Faults)+1)*2*time.Minute)
	}
	interval := between(rng, max(100*time.Millisecond, busy/3000), 20*time.Second).Round(time.Millisecond)
	keys := 1 + rng.IntN(12)
	pause := p.Think
	if rng.IntN(2) == 0 { // the limit is that of quiet times
		pause = p.Idle
	}
	asked := sampledPart * float64(p.Processes*p.Callers) / pause.Seconds() * (1 + math.Log(float64(keys))) / float64(keys)
	period := math.Exp2(7*rng.Float64() - 1)
	n := max(1, int(asked*period*math.Exp2(4*rng.Float64()-3)))
	p.Sampled = Sampled{
		Rate: limiter.Per(n, time.Duration(period*1000)*time.Millisecond), Interval: interval,
		Keys: keys, TopKeys: 1 + rng.IntN(2*keys), LocalKeys: 1 + rng.IntN(2*keys),
	}
}

// drawHost lets some of the fleets call a host.
func (p *Plan) drawHost(rng *rand.Rand) {
	if rng.IntN(4) > 0 {
		return
	}
	window := between(rng, 2*time.Second, time.Minute).Round(time.Second)
	asked := hostPart * float64(p.Processes*p.Callers) * window.Seconds() / p.Think.Seconds()
	p.Host = Host{Limit: 1 + int(asked*rng.Float64()), Window: window, Fails: 0.3 * rng.Float64() * rng.Float64()}
}

// drawRing makes a ring of some of the fleets with one server, and draws which server each
// fault concerns.
func (p *Plan) drawRing(rng *rand.Rand) {
	if p.Shape != Single || rng.IntN(4) > 0 {
		return
	}
	p.Shape = Ring
	for i := range p.Faults {
		p.Faults[i].On = rng.IntN(4) - 1
	}
}

// drawChanges draws limits that change, processes that stand still, and small memories.
func (p *Plan) drawChanges(rng *rand.Rand) {
	if rng.IntN(3) == 0 {
		p.Options.LocalKeys = 1 + rng.IntN(4)
	}
	for i := range p.Faults {
		if f := &p.Faults[i]; rng.IntN(12) == 0 && p.Processes > 1 {
			*f = Fault{Kind: Paused, At: f.At, For: f.For, Of: rng.Perm(p.Processes)[:1+rng.IntN(p.Processes-1)], On: -1}
		}
	}
	if rng.IntN(3) > 0 {
		return
	}
	for range 1 + rng.IntN(2) {
		i := rng.IntN(len(p.Limits))
		to := p.Limits[i]
		to.Limit = scaled(to.Limit, math.Exp2(4*rng.Float64()-2))
		if to.most() > 0 {
			p.Changes = append(p.Changes, Change{At: time.Duration(rng.Int64N(int64(p.Life))), Of: i, To: to.Limit})
		}
	}
	slices.SortFunc(p.Changes, func(a, b Change) int { return cmp.Compare(a.At, b.At) })
	for i := range p.Changes { // one after the other, before the end
		end := p.Life
		if i+1 < len(p.Changes) {
			end = p.Changes[i+1].At
		}
		if most := min(end-p.Changes[i].At-2*time.Second, 5*time.Minute); most > 0 && rng.IntN(2) == 0 {
			p.Changes[i].Within = time.Duration(rng.Int64N(int64(most)))
		}
	}
}

// drawShape draws a shape, and which server each fault concerns.
func (p *Plan) drawShape(rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		return
	}
	p.Shape = Shape(1 + rng.IntN(int(drawnShapes)-1))
	p.Options.Deadlines = rng.IntN(2) == 0
	if p.Shape.servers() == 1 {
		return
	}
	for i := range p.Faults {
		f := &p.Faults[i]
		f.On = rng.IntN(4) - 1
		if rng.IntN(5) == 0 {
			f.Kind, f.On, f.Of, f.Text, f.By = Migrated, rng.IntN(3), nil, "", 0
		}
	}
}

// drawLimit draws a limit of about so many units per second that New accepts.
func drawLimit(rng *rand.Rand, perSecond float64) Limit {
	l := Limit{Limit: drawBare(rng, perSecond)}
	for l.most() == 0 {
		l.Limit = drawBare(rng, perSecond)
	}
	whole := l
	switch rng.IntN(5) {
	case 0:
		l.Lease, l.Age = 1+int(float64(l.Burst())*rng.Float64()), between(rng, 20*time.Millisecond, 20*time.Second)
	case 1:
		l.Parts = 2 + rng.IntN(4)
	case 2:
		l.Lease, l.Age = 1+int(float64(l.Burst())*rng.Float64()/8), between(rng, 20*time.Millisecond, 5*time.Second)
		l.Parts = 2 + rng.IntN(2)
	}
	if l.most() == 0 {
		return whole
	}
	return l
}

// drawBare draws a limit of about so many units per second.
func drawBare(rng *rand.Rand, perSecond float64) limiter.Limit {
	period := math.Exp2(9*rng.Float64() - 1) // half a second to four minutes
	n := min(5000, max(1, int(perSecond*period)))
	rate := limiter.Per(n, time.Duration(period*1000)*time.Millisecond)
	burst := 1 + int(perSecond*math.Exp2(7*rng.Float64()-4))
	switch rng.IntN(7) {
	case 0:
		return limiter.FixedWindow(rate)
	case 1:
		return limiter.SlidingWindowLog(rate)
	case 2:
		return limiter.SlidingWindowCounter(rate)
	case 3:
		return limiter.TokenBucket(rate, burst)
	case 4:
		return limiter.LeakyBucket(rate, burst)
	case 5:
		return limiter.LeakyBucketShaping(rate, burst)
	}
	return limiter.GCRA(rate, burst)
}
