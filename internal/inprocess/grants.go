package inprocess

import (
	"math"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// grants is what Redis granted this process of a key lately: units that weigh less and less
// while Redis decides. While this process decides alone, their time stands still. The zero
// value is nothing. docs/guarantees.md derives what the grants of all processes add up to.
type grants struct {
	units float64
	most  float64 // the most that units can be in Redis, of the limit that they count for
	at    int64   // when units weighed as much
}

// add adds units that Redis granted. Since lost, if it is not 0, this process has decided alone.
func (g *grants) add(p algo.Params, units, now, lost int64) {
	if lost != 0 {
		g.at += now - lost
	}
	_, most := p.Grants()
	g.units, g.at, g.most = g.weigh(p, now, 0)+float64(units), now, most
}

// give takes units back that others may be granted now.
func (g *grants) give(units int64) { g.units = max(0, g.units-float64(units)) }

// weigh is what the units weigh under a limit. Those of another limit weigh nothing.
func (g *grants) weigh(p algo.Params, now, lost int64) float64 {
	length, most := p.Grants()
	if g.most != most {
		return 0
	}
	if lost != 0 {
		now = lost
	}
	return g.units * math.Exp(-float64(max(0, now-g.at))/length)
}

// part is the part of a limit that was granted, at most 1. It is rounded down by less than
// 0.2 %, so that keys have few different ones.
func (g *grants) part(p algo.Params, now, lost int64) float64 {
	units := g.weigh(p, now, lost)
	if units == 0 {
		return 0
	}
	return math.Float64frombits(math.Float64bits(min(1, units/g.most)) &^ (1<<43 - 1))
}
