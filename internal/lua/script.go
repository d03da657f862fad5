// Package lua holds the Redis side of the limiter: the scripts, the names of
// their keys, the one encoder of their arguments and the one decoder of their
// replies. The scripts transcribe the step functions of package algo.
package lua

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
)

//go:embed scripts/head.lua
var head string

//go:embed scripts/tail.lua
var tail string

//go:embed scripts/fw.lua
var fixedWindow string

//go:embed scripts/swl.lua
var slidingWindowLog string

//go:embed scripts/swc.lua
var slidingWindowCounter string

//go:embed scripts/tb.lua
var tokenBucket string

//go:embed scripts/lb.lua
var leakyBucket string

//go:embed scripts/lb_policing.lua
var policing string

//go:embed scripts/lb_shaping.lua
var shaping string

//go:embed scripts/gcra.lua
var gcra string

//go:embed scripts/block.lua
var block string

//go:embed scripts/beat.lua
var beat string

// Script is one Lua script with its SHA-1, and the name it has as a function.
type Script struct {
	name string
	src  string
	sha  string
}

func newScript(name string, parts ...string) *Script {
	src := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(src))
	return &Script{name: functionPrefix + name, src: src, sha: hex.EncodeToString(sum[:])}
}

// Source returns the script's text.
func (s *Script) Source() string { return s.src }

// SHA returns the name under which Redis keeps the script.
func (s *Script) SHA() string { return s.sha }

var scripts = [...]*Script{
	algo.FixedWindow:          newScript("fw", head, fixedWindow, tail),
	algo.SlidingWindowLog:     newScript("swl", head, slidingWindowLog, tail),
	algo.SlidingWindowCounter: newScript("swc", head, slidingWindowCounter, tail),
	algo.TokenBucket:          newScript("tb", head, tokenBucket, tail),
	algo.LeakyBucket:          newScript("lb", head, leakyBucket, policing, tail),
	algo.LeakyBucketShaping:   newScript("lbs", head, leakyBucket, shaping, tail),
	algo.GCRA:                 newScript("gcra", head, gcra, tail),
}

var (
	blockScript = newScript("block", block)
	beatScript  = newScript("beat", beat)
)

// For returns the script of an algorithm.
func For(k algo.Kind) *Script { return scripts[k] }

// Doer sends one command; every go-redis client is one.
type Doer interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// once is a command that is never sent again: when its reply is lost, whether
// it was executed is unknown, and sending it twice would charge twice.
type once struct{ *redis.IntSliceCmd }

// NoRetry is go-redis's switch for that.
func (once) NoRetry() bool { return true }

func send(ctx context.Context, rdb Doer, args []any) ([]int64, error) {
	cmd := once{redis.NewIntSliceCmd(ctx, args...)}
	if err := rdb.Process(ctx, cmd); err != nil {
		return nil, foreign(err)
	}
	return cmd.Val(), nil
}

// foreign marks what go-redis could not read as the reply of our scripts.
func foreign(err error) error {
	var number *strconv.NumError
	if errors.Is(err, redis.Nil) || errors.As(err, &number) || strings.HasPrefix(err.Error(), "redis: can't parse") {
		return &ReplyError{What: err.Error()}
	}
	return err
}
