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
	"fmt"
	"slices"
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
	sha   any    // a string, in an interface once and for all calls
	bytes []byte // of sha
	peeks bool   // it has a form that only reads
}

func newScript(name string, files ...string) *Script {
	return named(name, parts(append([]string{"clock"}, files...)...))
}

// kindFiles are those of each algorithm, and stepFiles each of them once.
var kindFiles = [...]string{
	algo.FixedWindow:          "fw",
	algo.SlidingWindowLog:     "swl",
	algo.SlidingWindowCounter: "swc",
	algo.TokenBucket:          "bucket",
	algo.LeakyBucket:          "bucket",
	algo.LeakyBucketShaping:   "bucket",
	algo.GCRA:                 "bucket",
}

var stepFiles = []string{"bucket", "fw", "swc", "swl"}

// stepNames are kindFiles, boxed once.
var stepNames = func() (all [len(kindFiles)]any) {
	for k, file := range kindFiles {
		all[k] = file
	}
	return all
}()

// general is an algorithm as a function that decides, gives back and blocks.
func general(k algo.Kind) string {
	state := ""
	if k != algo.SlidingWindowLog {
		state = parts("state")
	}
	whole, _, _ := strings.Cut(parts(kindFiles[k]), "-- step\n")
	return fmt.Sprintf("local LOG, WIDTH = %t, %d\n", k == algo.SlidingWindowLog, width(k)) +
		"local function general(op, key, v, now, a, b, full, tail, c, item)\n" + state + whole + "end\n"
}

// decide is the script that decides. What is usual stands in its loop, without a function.
func decide(k algo.Kind) string {
	_, step, _ := strings.Cut(parts(kindFiles[k]), "-- step\n")
	before, after, _ := strings.Cut(parts("decide"), "  -- step\n")
	return general(k) + before + step + after
}

// newKindScript makes a script of one algorithm.
func newKindScript(k algo.Kind, name, tail string) *Script {
	src := decide(k)
	if tail != "decide" {
		src = parts("clock") + general(k) + parts(tail)
	}
	s := named(k.Short()+name, src)
	s.peeks = tail == "decide"
	return s
}

// newAllScript makes the script that decides several limits at once, of the algorithms that
// these files know. What is usual stands in its loop here too, and the functions for what is rare are only
// made where something is.
func newAllScript(files ...string) *Script {
	var steps, functions, generals, widths string
	for _, file := range files {
		k := algo.Kind(slices.Index(kindFiles[:], file))
		_, step, _ := strings.Cut(parts(file), "-- step\n")
		steps += "elseif name == '" + file + "' then\n" + step
		functions += "local general_" + file + "\ndo\n" + general(k) + "general_" + file + " = general\nend\n"
		generals += file + " = general_" + file + ", "
		widths += fmt.Sprintf("%s = %d, ", file, width(k))
	}
	s := named("all", strings.NewReplacer(
		"-- steps\n", strings.TrimPrefix(steps, "else")+"end\n",
		"-- generals\n", functions+"local generals, widths = {"+generals+"}, {"+widths+"}\n",
	).Replace(parts("all")))
	s.peeks = true
	return s
}

// allScripts are those for some algorithms only, by the bits of their files: reading the steps of
// the others would take longer than making these.
var allScripts sync.Map

// forAll returns the script for the algorithms of items. As a function all of them
// are the one that knows every algorithm.
func forAll(items []Item) *Script {
	var set uint8
	for i := range items {
		set |= 1 << slices.Index(stepFiles, kindFiles[items[i].Params.Kind])
	}
	if s, ok := allScripts.Load(set); ok {
		return s.(*Script)
	}
	var files []string
	for i, file := range stepFiles {
		if set&(1<<i) != 0 {
			files = append(files, file)
		}
	}
	s, _ := allScripts.LoadOrStore(set, newAllScript(files...))
	return s.(*Script)
}

func named(name, src string) *Script {
	sha := SHA(src)
	return &Script{name: functionPrefix + name, src: src, sha: sha, bytes: []byte(sha)}
}

// parts reads the files that make a script.
func parts(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		src, err := sources.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // never: the files are embedded, and each is read when the package is initialized
		}
		b.Write(src)
		b.WriteByte('\n')
	}
	return b.String()
}

// The scripts of each algorithm: to decide, to give back, and to block. What shaping
// took keeps its place.
var (
	scripts      = kindScripts("", "decide")
	backScripts  = kindScripts("_back", "give_back")
	blockScripts = kindScripts("_block", "block")
)

func kindScripts(name, tail string) (all [len(algo.Kinds) + 1]*Script) {
	for _, k := range algo.Kinds {
		if name != "_back" || k != algo.LeakyBucketShaping {
			all[k] = newKindScript(k, name, tail)
		}
	}
	return all
}

var (
	allScript = newAllScript(stepFiles...)

	permitsScript = newScript("permits", "permits_state", "permits")
	keepScript    = newScript("permits_keep", "permits_state", "permits_keep")

	sampledScript = newScript("sampled", "sampled")
	buryScript    = newScript("sampled_bury", "sampled_bury")
	beatScript    = newScript("beat", "beat")
	learntScript  = newScript("learnt", "learnt")
	publishScript = newScript("publish", "publish")
)

// all are the scripts that are made at the start.
var all = slices.DeleteFunc(slices.Concat(scripts[:], backScripts[:], blockScripts[:], []*Script{
	allScript, unblockScript, publishScript, beatScript, learntScript, permitsScript, keepScript, sampledScript, buryScript,
}), func(s *Script) bool { return s == nil })

// Doer sends commands; every go-redis client is one.
type Doer interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// once is a command that is never sent again: when its reply is lost, whether
// it was executed is unknown, and sending it twice would charge twice.
type once struct{ *redis.IntSliceCmd }

// NoRetry is go-redis's switch for that.
func (once) NoRetry() bool { return true }

// foreign marks what go-redis could not read as the reply of our scripts.
func foreign(err error) error {
	if err == nil {
		return nil
	}
	_, number := errors.AsType[*strconv.NumError](err)
	if errors.Is(err, redis.Nil) || number || strings.HasPrefix(err.Error(), "redis: can't parse") {
		return &ReplyError{What: err.Error()}
	}
	return err
}

// SHA returns the name under which Redis keeps a script's text.
func SHA(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Known returns which script has that SHA-1, "" for none: for servers that execute the
// scripts by other means.
func Known(sha string) string {
	name := ""
	is := func(s *Script) bool {
		if s.sha == any(sha) {
			name = strings.TrimPrefix(s.name, functionPrefix)
		}
		return name != ""
	}
	if !slices.ContainsFunc(all, is) {
		allScripts.Range(func(_, s any) bool { return !is(s.(*Script)) })
	}
	return name
}
