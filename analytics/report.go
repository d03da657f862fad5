package analytics

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/topk"
)

// hashBytes is how much of an HMAC a report shows: too much to be met twice by chance.
const hashBytes = 16

// Report is what was denied since a time. The zero value is that of nothing.
type Report struct {
	// Since is when the time began that the report is about: the previous period, or
	// the first one. In UTC, to the millisecond.
	Since time.Time `json:"since"`
	// Denied is how many decisions were denied since then, for all keys. It is exact.
	Denied int64 `json:"denied"`
	// Keys are those that were denied most, by what is certain of it, which is their
	// Denied - Error.
	Keys []Key `json:"keys"`
}

// Key is what is known of one key.
type Key struct {
	// Key is the key as the limiter was asked for it. If it is longer than 128 bytes it
	// is "sha256:" and its SHA-256 in hexadecimal; under WithHashedKeys it is a hash. In
	// JSON, bytes that are not UTF-8 become U+FFFD.
	Key string `json:"key"`
	// Denied is how many decisions were denied, at most: it may be too high by Error,
	// and is exact when that is 0. Error is no more than the denials of both periods
	// divided by the capacity.
	Denied int64 `json:"denied"`
	Error  int64 `json:"error"`
	// DeniedUnits is the sum of the costs that were denied, at least; it is exact when
	// Error is 0.
	DeniedUnits int64 `json:"denied_units"`
	// Allowed is how many decisions were allowed after the first in each period that was
	// denied, at least, and exact when Error is 0: it distinguishes a key that is at its limit
	// from one that is far beyond it.
	Allowed int64 `json:"allowed"`
	// LastDenied is when the last one was denied, in UTC, to the millisecond.
	LastDenied time.Time `json:"last_denied"`
}

// Report returns the n keys that were denied most, or fewer when there are fewer;
// at most the capacity. Every key with more than 2/capacity of all denials is among the
// first capacity ones.
func (t *Top) Report(n int) Report {
	now := time.Now()
	elapsed := now.Sub(t.start)
	wall := func(at time.Duration) time.Time {
		return now.Add(at - elapsed).Round(time.Millisecond).UTC()
	}
	p := t.at(elapsed)
	r := Report{Since: wall(max(0, p.begin-t.period)), Keys: []Key{}}
	all := p.merge()
	for i := range all {
		r.Denied += all[i].counted
	}
	slices.SortFunc(all, func(a, b total) int {
		return cmp.Or(cmp.Compare(b.count-b.error, a.count-a.error), cmp.Compare(b.count, a.count), cmp.Compare(a.key, b.key))
	})
	for _, k := range all[:min(max(0, n), t.capacity, len(all))] {
		r.Keys = append(r.Keys, Key{
			Key: t.shown(k.key), Denied: k.count, Error: k.error, DeniedUnits: k.units,
			Allowed: k.allowed, LastDenied: wall(time.Duration(k.last)),
		})
	}
	return r
}

// shown is a key as reports show it.
func (t *Top) shown(key string) string {
	if !t.hashed {
		return key
	}
	return hash(key, t.secret)
}

// hash is a key as reports show it that show no keys.
func hash(key string, secret []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil)[:hashBytes])
}

// total is what is known of a key in both periods.
type total struct {
	key                  string
	counted              int64 // in the sketches that have it: over all keys, all denials
	count, error         int64
	units, allowed, last int64
}

// merge adds the periods up. A key that one of them does not have may have been
// counted there as often as the least that it has: that is error.
func (p *periods) merge() []total {
	var all []total
	for i := range p.current {
		items, least := p.current[i].Items()
		var old []topk.Item[counters]
		var oldLeast int64
		if p.previous != nil {
			old, oldLeast = p.previous[i].Items()
		}
		// By hash and key: a key may be the same as what is kept of a longer one.
		type id struct {
			hash uint64
			key  string
		}
		at := make(map[id]int, len(items))
		for _, it := range items {
			at[id{it.Hash, it.Key}] = len(all)
			all = append(all, totalOf(it, oldLeast))
		}
		for _, it := range old {
			j, both := at[id{it.Hash, it.Key}]
			if !both {
				all = append(all, totalOf(it, least))
				continue
			}
			k, o := &all[j], totalOf(it, 0)
			k.counted += o.counted
			k.count += o.count - oldLeast
			k.error += o.error - oldLeast
			k.units = sum(k.units, o.units)
			k.allowed += o.allowed
			k.last = max(k.last, o.last)
		}
	}
	return all
}

// totalOf is what one period says, when the other may have had that many more.
func totalOf(it topk.Item[counters], missed int64) total {
	return total{
		key: it.Key, counted: it.Count, count: it.Count + missed, error: it.Error + missed,
		units:   sum(it.Count-it.Error, it.Data.extra.Load()),
		allowed: it.Data.allowed.Load(), last: it.Data.last.Load(),
	}
}

// sum does not overflow.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
