package discovery

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/limiter"
)

// Shelf keeps for a fleet what is learnt.
type Shelf interface {
	Load(ctx context.Context, key string) ([]lua.LearntQuota, error)
	Save(ctx context.Context, key string, all []lua.LearntQuota, life time.Duration) error
	// Processes is how many are alive, this one included.
	Processes() int
	Close()
}

// redisShelf is a Shelf in Redis.
type redisShelf struct {
	link *redislink.Link
	lim  *limiter.Limiter // which has the heartbeat
}

func (s *redisShelf) Load(ctx context.Context, key string) ([]lua.LearntQuota, error) {
	id := lua.EncodeID(key)
	cmd := &lua.Learnt{Key: s.link.Names.Learnt(id)}
	err := s.link.Exec(ctx, id, cmd)
	return cmd.Out, err
}

func (s *redisShelf) Save(ctx context.Context, key string, all []lua.LearntQuota, life time.Duration) error {
	id := lua.EncodeID(key)
	return s.link.Exec(ctx, id, &lua.Learnt{Key: s.link.Names.Learnt(id), Life: life.Milliseconds(), Quotas: all})
}

func (s *redisShelf) Processes() int { return s.lim.Health().Processes }

func (s *redisShelf) Close() { s.link.Close(func() {}) }
