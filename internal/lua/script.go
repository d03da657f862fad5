// Package lua holds the Redis side of the limiter: the scripts, the names of
// their keys, the one encoder of their arguments and the one decoder of their
// replies. The scripts transcribe the step functions of package algo.
package lua

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
)

//go:embed scripts
var sources embed.FS

// Script is one Lua script with its SHA-1, and the name it has as a function.
type Script struct {
	name  string
	src   string
	sha   string
	boxed any // sha
}

func newScript(name string, files ...string) *Script {
	return named(name, parts(append([]string{"clock"}, files...)...))
}

// steps are the files of each algorithm's step.
var steps = [...][]string{
	algo.FixedWindow:          {"fw"},
	algo.SlidingWindowLog:     {"swl"},
	algo.SlidingWindowCounter: {"swc"},
	algo.TokenBucket:          {"tb_load", "tb"},
	algo.LeakyBucket:          {"lb_load", "lb", "lb_policing"},
	algo.LeakyBucketShaping:   {"lb_load", "lb", "lb_shaping"},
	algo.GCRA:                 {"gcra_load", "gcra"},
}

// newAllScript makes the script that decides several limits at once, and knows the
// steps of these algorithms.
func newAllScript(kinds ...algo.Kind) *Script {
	src := parts("all_begin", "clock", "head") + "local steps = {}\n"
	for _, k := range kinds {
		src += "do\n" + parts(steps[k]...) + "steps['" + k.Short() + "'] = {step = step, width = WIDTH, strings = STRINGS}\nend\n"
	}
	return named("all", src+parts("tail_all"))
}

// allScripts are those for some algorithms only, by their bits: reading the steps of
// the others would take longer than making these.
var allScripts sync.Map

// forAll returns the script for the algorithms of items. As a function all of them
// are the one that knows every algorithm.
func forAll(items []Item) *Script {
	var set uint8
	for i := range items {
		set |= 1 << items[i].Params.Kind
	}
	if s, ok := allScripts.Load(set); ok {
		return s.(*Script)
	}
	var kinds []algo.Kind
	for _, k := range algo.Kinds {
		if set&(1<<k) != 0 {
			kinds = append(kinds, k)
		}
	}
	s, _ := allScripts.LoadOrStore(set, newAllScript(kinds...))
	return s.(*Script)
}

func named(name, src string) *Script {
	sum := sha1.Sum([]byte(src))
	sha := hex.EncodeToString(sum[:])
	return &Script{name: functionPrefix + name, src: src, sha: sha, boxed: sha}
}

// Source returns the script's text.
func (s *Script) Source() string { return s.src }

// SHA returns the name under which Redis keeps the script.
func (s *Script) SHA() string { return s.sha }

// parts reads the files that make a script.
func parts(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		src, err := sources.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // embedded: a test would not get far
		}
		b.Write(src)
		b.WriteByte('\n')
	}
	return b.String()
}

// The scripts that decide, by algorithm.
var scripts = func() (all [len(algo.Kinds) + 1]*Script) {
	for _, k := range algo.Kinds {
		all[k] = newScript(k.Short(), append(append([]string{"head"}, steps[k]...), "tail")...)
	}
	return all
}()

// The scripts that give back; what shaping took keeps its place.
var backScripts = [...]*Script{
	algo.FixedWindow:          newScript("fw_back", "head", "window_back", "fw_back", "tail_back"),
	algo.SlidingWindowLog:     newScript("swl_back", "head", "swl_back", "tail_back"),
	algo.SlidingWindowCounter: newScript("swc_back", "head", "window_back", "swc_back", "tail_back"),
	algo.TokenBucket:          newScript("tb_back", "head", "undrained", "tb_load", "tb_back", "tail_back"),
	algo.LeakyBucket:          newScript("lb_back", "head", "undrained", "lb_load", "lb_back", "tail_back"),
	algo.GCRA:                 newScript("gcra_back", "head", "undrained", "gcra_load", "gcra_back", "tail_back"),
}

var (
	allScript   = newAllScript(algo.Kinds[:]...)
	blockScript = newScript("block", "block")

	slotsScript     = newScript("slots", "slots_head", "slots")
	slotsBeatScript = newScript("slots_beat", "slots_head", "slots_beat")

	sampledScript = newScript("sampled", "sampled")
	buryScript    = newScript("sampled_bury", "sampled_bury")
	beatScript    = newScript("beat", "beat")
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

func send(ctx context.Context, rdb Doer, w *wire) ([]int64, error) {
	w.cmd = *redis.NewIntSliceCmd(ctx, w.args...)
	cmd := once{&w.cmd}
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
