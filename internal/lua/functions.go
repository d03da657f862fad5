package lua

import (
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// functionPrefix begins the name of every function. Its number is raised when
// the scripts change so that old and new may not be mixed; a library with a new
// number also registers the functions of the numbers before it that still run.
const functionPrefix = "hf1_"

// Library is the source of the Redis library that holds every script as a
// function, and those that can peek also in a read-only form.
var Library = library()

func library() string {
	var b strings.Builder
	b.WriteString("#!lua name=holdfast\n")
	for _, s := range all {
		b.WriteString("local function " + s.name + "(KEYS, ARGV)\n" + s.src + "\nend\n")
		b.WriteString("redis.register_function{function_name='" + s.name + "', callback=" + s.name + "}\n")
		if s.peeks {
			b.WriteString("redis.register_function{function_name='" + s.name + "_ro', callback=" + s.name + ", flags={'no-writes'}}\n")
		}
	}
	return b.String()
}

// errLoad says that the library could not be loaded.
var errLoad = errors.New("loading the function library")

// functionsRejected reports whether err means that this server does not let us use
// functions at all: too old, or not permitted. A library that could not be loaded for
// another reason, such as a lack of memory, is loaded later.
func functionsRejected(err error) bool {
	return unknownCommand(err) || isReply(err) && redis.HasErrorPrefix(err, "NOPERM")
}

// isReply reports whether err is an error that Redis replied with.
func isReply(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// loadEverywhere loads the library on every master. A node that cannot be
// reached is skipped: the library is loaded there when a call finds that it lacks a function.
func loadEverywhere(ctx context.Context, rdb redis.UniversalClient, library string) error {
	load := func(ctx context.Context, c *redis.Client) error {
		if err := c.Do(ctx, "function", "load", "replace", library).Err(); isReply(err) {
			return err
		}
		return nil
	}
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, load)
	case *redis.Ring:
		return c.ForEachShard(ctx, load)
	case *redis.Client:
		return load(ctx, c)
	default:
		return rdb.Do(ctx, "function", "load", "replace", library).Err()
	}
}
