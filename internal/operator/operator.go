// Package operator is what a person who operates a fleet asks of its Redis: what is stored for a key,
// to change that, who takes part, and what in this Redis will hurt. The command holdfast and
// package admin show it.
//
// It makes its calls by itself, and not by a redislink.Link: an operator waits for Redis, wants its
// errors, and must not be counted as a process of the fleet.
package operator

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/limiter"
)

// ErrBadRequest is what errors match that say that something is not possible, whatever Redis says.
var ErrBadRequest = errors.New("not possible")

// badRequest is an error that matches ErrBadRequest and says what is wrong.
type badRequest struct{ error }

func (badRequest) Is(target error) bool { return target == ErrBadRequest }

// Operator asks one Redis about what has one prefix. It is safe for concurrent use. Make one with New.
type Operator struct {
	rdb     redis.UniversalClient
	prefix  string
	names   *lua.Namer
	scripts *lua.Client
}

// New returns an operator, who uses a client that stays the caller's.
func New(rdb redis.UniversalClient, prefix string) (*Operator, error) {
	if configerr.IsNil(rdb) {
		return nil, configerr.New("client", "nil", "must be a go-redis client")
	}
	if rule := lua.CheckPrefix(prefix); rule != "" {
		return nil, configerr.New("prefix", prefix, rule)
	}
	return &Operator{rdb, prefix, lua.NewNamer(prefix), lua.NewClient(rdb)}, nil
}

// Prefix is that of the keys.
func (o *Operator) Prefix() string { return o.prefix }

// now is the time of Redis.
func (o *Operator) now(ctx context.Context) (time.Time, error) { return o.rdb.Time(ctx).Result() }

// paramsOf returns what a limit is to the scripts, and its algorithm.
func paramsOf(l limiter.Limit) (algo.Params, error) {
	var kind algo.Kind
	for _, k := range algo.Kinds {
		if k.String() == l.Algorithm() {
			kind = k
		}
	}
	p, err := algo.Limit{Kind: kind, N: int64(l.Rate().N), Per: l.Rate().Per.Microseconds(), Burst: int64(l.Burst())}.Params()
	if err == nil && followsCalendar(l) {
		for _, shortest := range algo.Shortest { // as in a state
			if shortest < l.Rate().Per.Microseconds() {
				p.Den = shortest
			}
		}
	}
	return p, err
}

// followsCalendar reports whether a limit is one of limiter.Calendar, whose rate is a mean.
func followsCalendar(l limiter.Limit) bool {
	return l.Algorithm() == algo.FixedWindow.String() && l != limiter.FixedWindow(l.Rate())
}

// rateOf says a rate as people do: num units in den µs.
func rateOf(num, den int64) string {
	if num < 1 || den < 1 {
		return ""
	}
	for _, per := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		if us := per.Microseconds(); num <= algo.MaxExact/us && num*us%den == 0 {
			return rateText(num*us/den, per)
		}
	}
	return rateText(num, time.Duration(den)*time.Microsecond)
}

// rateText is the text of a rate, of which an int of 32 bits need not hold the number.
func rateText(n int64, per time.Duration) string {
	return strconv.FormatInt(n, 10) + strings.TrimPrefix(limiter.Per(1, per).String(), "1")
}

// do runs commands of the scripts, and returns the first error.
func (o *Operator) do(ctx context.Context, cmds ...lua.Command) error {
	errs := make([]error, len(cmds))
	o.scripts.Do(ctx, cmds, errs)
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
