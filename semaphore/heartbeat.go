package semaphore

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
)

const (
	// beatsPerTTL is how many heartbeats there are in a permit's time to live.
	beatsPerTTL = 3
	// permitsPerBeat bounds the permits of one key in a request, and keysPerBeat the
	// requests that are made at a time.
	permitsPerBeat = 1000
	keysPerBeat    = 64
)

// startHeartbeat makes sure that there is a heartbeat to come. mu is held.
func (s *Semaphore) startHeartbeat() {
	if s.timer == nil && !s.redis.IsClosed() {
		s.timer = time.AfterFunc(s.ttl/beatsPerTTL, s.heartbeat)
	}
}

// heartbeat extends what is held, in the background, and goes on while there is something.
func (s *Semaphore) heartbeat() {
	s.redis.Background.Start(func(ctx context.Context) {
		s.extendAll(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.timer = nil
		if s.held > 0 {
			s.startHeartbeat()
		}
	})
}

// beat is the permits of one key in a heartbeat.
type beat struct {
	k       *key
	permits []*Permit
}

// extendAll extends all permits of this process, whoever granted them: those that it
// granted itself count in Redis from then on.
func (s *Semaphore) extendAll(ctx context.Context) {
	var all []beat
	s.mu.Lock()
	for _, k := range s.keys {
		var permits []*Permit
		for _, p := range k.holding {
			permits = append(permits, p)
		}
		for part := range slices.Chunk(permits, permitsPerBeat) {
			all = append(all, beat{k, part})
		}
	}
	s.mu.Unlock()
	for some := range slices.Chunk(all, keysPerBeat) {
		s.extend(ctx, some)
	}
}

// extend extends the permits of some keys.
func (s *Semaphore) extend(ctx context.Context, beats []beat) {
	ops := make([]*redislink.Op, len(beats))
	for i, b := range beats {
		of := &lua.Holders{ID: b.k.id, Key: b.k.inRedis}
		for _, p := range b.permits {
			of.Callers = append(of.Callers, p.caller)
		}
		ops[i] = &redislink.Op{ID: b.k.id, Keep: of, TTL: s.ttl.Microseconds()}
	}
	errs := s.redis.AskAll(ctx, ops)
	for i, b := range beats {
		var gone []string
		for n, p := range b.permits {
			if p.released.Load() {
				gone = append(gone, p.caller) // meanwhile: the heartbeat has brought it back
			} else if errs[i] == nil && p.known.Swap(true) && ops[i].Lost[n] {
				p.lose()
			}
		}
		if len(gone) > 0 {
			s.forget(ctx, b.k, gone...)
		}
	}
}
