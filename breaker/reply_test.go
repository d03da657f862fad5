package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
)

// reply is an error reply as go-redis returns it.
type reply string

func (r reply) Error() string { return string(r) }
func (r reply) RedisError()   {}

const (
	sha    = "1f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c"
	suffix = " script: " + sha + ", on @user_script:1."
	old    = "ERR Error running script (call to f_" + sha + "): @user_script:12: "
	inner  = "@user_script: 12: "
)

var replies = []struct {
	text string
	want breaker.Class
}{
	{"LOADING Redis is loading the dataset in memory", breaker.ClassUnavailable},
	{"READONLY You can't write against a read only replica.", breaker.ClassReadOnly},
	{"READONLY You can't write against a read only replica." + suffix, breaker.ClassReadOnly},
	{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", breaker.ClassUnavailable},
	{"CLUSTERDOWN The cluster is down", breaker.ClassUnavailable},
	{"CLUSTERDOWN Hash slot not served", breaker.ClassUnavailable},
	{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", breaker.ClassUnavailable},
	{"OOM command not allowed when used memory > 'maxmemory'." + suffix, breaker.ClassReadOnly},
	{"OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'", breaker.ClassReadOnly},
	{"MISCONF Errors writing to the AOF file: No space left on device" + suffix, breaker.ClassReadOnly},
	{"NOREPLICAS Not enough good replicas to write." + suffix, breaker.ClassReadOnly},
	{"NOAUTH Authentication required.", breaker.ClassUnavailable},
	{"WRONGPASS invalid username-password pair or user is disabled.", breaker.ClassUnavailable},
	{"DENIED Redis is running in protected mode because protected mode is enabled", breaker.ClassUnavailable},
	{"ERR max number of clients reached", breaker.ClassUnavailable},
	{"ERR max number of clients + cluster connections reached", breaker.ClassUnavailable},
	{"ERR Script killed by user with SCRIPT KILL." + suffix, breaker.ClassUnavailable},
	{"ERR Can not run script with write flag on readonly replica", breaker.ClassReadOnly},
	{"ERR Script attempted to execute a command while the cluster is down" + suffix, breaker.ClassUnavailable},
	{"ERR Script attempted to execute a write command while the cluster is down and readonly" + suffix, breaker.ClassUnavailable},
	{"ERR unauthenticated", breaker.ClassUnavailable},
	{"ERR invalid password", breaker.ClassUnavailable},
	{"ERR AUTH <password> called without any password configured for the default user.", breaker.ClassUnavailable},
	{"ERR Client sent AUTH, but no password is set", breaker.ClassUnavailable},
	{"ERR OOM command not allowed when used memory > 'maxmemory'.", breaker.ClassReadOnly},

	// Since 7.4, and in Valkey since 8.
	{"ERR Unable to execute command 'get' in script because undeclared keys were accessed during rehashing of the slot" + suffix, breaker.ClassRedirect},
	{"ERR Unable to execute command 'hmget' in script because undeclared keys were accessed during rehashing of the slot", breaker.ClassRedirect},
	{"ERR Script attempted to access a slot not served" + suffix, breaker.ClassUnavailable},
	{"Script attempted to access a slot not served", breaker.ClassUnavailable},
	// Dragonfly.
	{"ERR Out of memory", breaker.ClassUnavailable},
	{old + "Out of memory", breaker.ClassUnavailable},
	{"ERR Cluster is not yet configured", breaker.ClassUnavailable},
	// KeyDB.
	{"SHUTDOWN PENDING", breaker.ClassUnavailable},
	// Kvrocks names the call without the word Error.
	{"ERR running script (call to f_" + sha + "): @user_script: 12: READONLY You can't write against a read only slave.", breaker.ClassUnavailable},
	{"ERR running script (call to f_" + sha + "): user_script:12: READONLY You can't write against a read only slave.", breaker.ClassUnavailable},
	{"ERR running script (call to f_" + sha + "): @user_script: 12: -ERR OOM command not allowed when used memory > 'maxmemory'.", breaker.ClassUnavailable},
	{"ERR running script (call to f_" + sha + "): user_script:12: attempt to index a nil value", breaker.ClassBug},

	// 6.2 and Dragonfly wrap what a command inside the script answered.
	{old + inner + "-READONLY You can't write against a read only replica. ", breaker.ClassReadOnly},
	{old + inner + "-OOM command not allowed when used memory > 'maxmemory'. ", breaker.ClassReadOnly},
	{old + "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk. ", breaker.ClassReadOnly},
	{old + inner + "-NOREPLICAS Not enough good replicas to write. ", breaker.ClassReadOnly},
	{old + inner + "Lua script attempted to execute a command while the cluster is down", breaker.ClassUnavailable},
	{old + inner + "Lua script attempted to execute a write command while the cluster is down and readonly", breaker.ClassUnavailable},
	{old + "Script killed by user with SCRIPT KILL... ", breaker.ClassUnavailable},
	{"ERR Error running script: Script killed by user with SCRIPT KILL.", breaker.ClassUnavailable},
	{inner + "-OOM command not allowed when used memory > 'maxmemory'.", breaker.ClassReadOnly},
	{old + inner + "Lua script attempted to access a non local key in a cluster node", breaker.ClassRedirect},
	{old + inner + "The user executing the script can't run this command or subcommand", breaker.ClassPermission},
	{old + inner + "-ERR The user executing the script can't run this command or subcommand", breaker.ClassPermission},
	{old + "WRONGTYPE Operation against a key holding the wrong kind of value", breaker.ClassBug},
	{old + inner + "-ERR This Redis command is not allowed from script", breaker.ClassBug},
	{old + "user_script:12: attempt to index a nil value", breaker.ClassBug},
	{"ERR Error running script", breaker.ClassBug},

	{"NOSCRIPT No matching script. Please use EVAL.", breaker.ClassNoScript},
	{"ERR NOSCRIPT No matching script. Please use EVAL.", breaker.ClassNoScript},
	{"ERR Function not found", breaker.ClassNoScript},

	{"MOVED 3999 127.0.0.1:6381", breaker.ClassRedirect},
	{"ASK 3999 127.0.0.1:6381", breaker.ClassRedirect},
	{"TRYAGAIN Multiple keys request during rehashing of slot", breaker.ClassRedirect},
	{"REDIRECT 127.0.0.1:6381", breaker.ClassRedirect},
	{"ERR Script attempted to access a non local key in a cluster node" + suffix, breaker.ClassRedirect},

	{"NOPERM User limiter has no permissions to run the 'evalsha' command", breaker.ClassPermission},
	{"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand", breaker.ClassPermission},
	{"ERR The user executing the script can't run this command or subcommand" + suffix, breaker.ClassPermission},
	{"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments" + suffix, breaker.ClassPermission},
	{"ERR ACL failure in script: User limiter has no permissions to run the 'set' command" + suffix, breaker.ClassPermission},

	{"WRONGTYPE Operation against a key holding the wrong kind of value" + suffix, breaker.ClassBug},
	{"CROSSSLOT Keys in request don't hash to the same slot", breaker.ClassBug},
	{"ERR user_script:1: attempt to compare nil with number" + suffix, breaker.ClassBug},
	{"ERR value is not an integer or out of range" + suffix, breaker.ClassBug},
	{"ERR unknown command 'evalsha', with args beginning with: ", breaker.ClassBug},
	{"ERR DB index is out of range", breaker.ClassBug},
	{"ERR invalid expire time in 'set' command" + suffix, breaker.ClassBug},
	// A code is a whole word, and only at the beginning.
	{"BUSYGROUP Consumer Group name already exists", breaker.ClassBug},
	{"ERR wrong key READONLY OOM BUSY", breaker.ClassBug},
	{"ERR wrong key max number of clients", breaker.ClassBug},
	{"@user_script: x: -OOM not a position", breaker.ClassBug},
	{"@user_script: 12", breaker.ClassBug},
	{"ERR running script", breaker.ClassBug},
	{"OUT of memory", breaker.ClassBug},
	{"", breaker.ClassBug},
}

func TestClassifyReplies(t *testing.T) {
	ctx := context.Background()
	for _, tt := range replies {
		if got := breaker.Classify(ctx, reply(tt.text)); got != tt.want {
			t.Errorf("%q: %v, want %v", tt.text, got, tt.want)
		}
		wrapped := fmt.Errorf("limiter: %w", errors.Join(errors.New("context"), reply(tt.text)))
		if got := breaker.Classify(ctx, wrapped); got != tt.want {
			t.Errorf("wrapped %q: %v, want %v", tt.text, got, tt.want)
		}
		// A reply is what Redis said, whenever it was said.
		over, cancel := context.WithCancel(ctx)
		cancel()
		if got := breaker.Classify(over, reply(tt.text)); got != tt.want {
			t.Errorf("%q after the caller left: %v, want %v", tt.text, got, tt.want)
		}
	}
}

func TestClassifyGoRedisReplies(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want breaker.Class
	}{
		{redis.Nil, breaker.ClassBug},
		{redis.TxFailedErr, breaker.ClassBug},
		{redis.ErrCrossSlot, breaker.ClassBug},
		{redis.ErrNoScript, breaker.ClassNoScript},
		// What sentinels answer is not what the script answered.
		{fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(redis.Nil, reply("NOPERM x"))), breaker.ClassUnavailable},
	} {
		if got := breaker.Classify(context.Background(), tt.err); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}

// Any text is classed without a panic, and never as something only a call can be.
func FuzzClassifyReply(f *testing.F) {
	for _, tt := range replies {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := breaker.Classify(context.Background(), reply(text))
		if c == breaker.ClassOK || c == breaker.ClassCaller || c == breaker.ClassSlow || c == breaker.ClassAborted {
			t.Errorf("%q: a reply is never %v", text, c)
		}
	})
}
