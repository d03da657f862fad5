// Package sampled limits fleets that are too large for a call to Redis per decision.
//
//	lim, err := sampled.New(rdb, limiter.PerSecond(1_000_000))
//	...
//	res, err := lim.Allow(ctx, "tenant:42")
//
// Each process counts what it is asked for, reports once per interval, and admits with the
// probability that brings the fleet to the rate. Options, results, hooks, health and errors
// are those of package limiter.
package sampled
