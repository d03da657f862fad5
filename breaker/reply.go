package breaker

import (
	"regexp"
	"strings"
)

// wrapping is what servers put in front of the words that matter, in any order and as often as
// it is there:
//
//	ERR Error running script (call to f_<sha>): @user_script:3: @user_script: 3: -OOM command…   (6.2, Dragonfly)
//	ERR running script (call to f_<sha>): user_script:3: READONLY You can't…   (Kvrocks)
//	@user_script: 3: -OOM command…       (6.2, from redis.pcall)
//	ERR OOM command…                     (Kvrocks)
//
// Since 7.0 the position of the error is a suffix, which no rule here reads.
var wrapping = regexp.MustCompile(`(?s)^(?:ERR |-|(?:Error )?running script.*?: |@?user_script:[ 0-9]*: )*`)

// innerText removes it.
func innerText(msg string) string { return msg[len(wrapping.FindString(msg)):] }

// classifyReply classes an error reply by its code, the first word, or, for the replies
// whose code is the catch-all ERR, by how their sentence begins. What no rule knows,
// redis.Nil among it, is ClassBug.
func classifyReply(msg string) Class {
	msg = innerText(msg)
	code, _, _ := strings.Cut(msg, " ")
	if class, ok := codes[code]; ok {
		return class
	}
	for _, s := range sentences {
		if strings.HasPrefix(msg, s.prefix) {
			return s.class
		}
	}
	// How some managed services say that a credential expired.
	if strings.Contains(msg, "unauthenticated") {
		return ClassUnavailable
	}
	return ClassBug
}

var codes = map[string]Class{
	"LOADING":     ClassUnavailable,
	"READONLY":    ClassReadOnly,
	"MASTERDOWN":  ClassUnavailable,
	"CLUSTERDOWN": ClassUnavailable,
	"BUSY":        ClassUnavailable,
	"OOM":         ClassReadOnly,
	"MISCONF":     ClassReadOnly,
	"NOREPLICAS":  ClassReadOnly,
	"NOAUTH":      ClassUnavailable,
	"WRONGPASS":   ClassUnavailable,
	"DENIED":      ClassUnavailable, // protected mode: the server answers this instead of serving
	"SHUTDOWN":    ClassUnavailable, // KeyDB, while it ends
	"NOSCRIPT":    ClassNoScript,
	"MOVED":       ClassRedirect,
	"ASK":         ClassRedirect,
	"TRYAGAIN":    ClassRedirect,
	"REDIRECT":    ClassRedirect, // Valkey, from a primary that became a replica
	"MIGRATING":   ClassRedirect, // Garnet, of a hash slot that is leaving
	"NOPERM":      ClassPermission,
}

var sentences = []struct {
	prefix string
	class  Class
}{
	{"max number of clients", ClassUnavailable},
	// AUTH in the words of proxies and of servers before 6.0.
	{"invalid password", ClassUnavailable},
	{"AUTH <password> called without any password configured", ClassUnavailable},
	{"Client sent AUTH, but no password is set", ClassUnavailable},
	// An operator ended a script that kept the server busy.
	{"Script killed by user", ClassUnavailable},
	// READONLY in 7.0's words for scripts that declare flags.
	{"Can not run script with write flag on readonly replica", ClassReadOnly},
	// CLUSTERDOWN met inside a script; 6.2 says "Lua script".
	{"Script attempted to execute a command while the cluster is down", ClassUnavailable},
	{"Script attempted to execute a write command while the cluster is down", ClassUnavailable},
	{"Lua script attempted to execute a command while the cluster is down", ClassUnavailable},
	{"Lua script attempted to execute a write command while the cluster is down", ClassUnavailable},
	// No server has the hash slot. Since 7.4, and in Valkey since 8.
	{"Script attempted to access a slot not served", ClassUnavailable},
	// Dragonfly's OOM and CLUSTERDOWN.
	{"Out of memory", ClassUnavailable},
	{"Cluster is not yet configured", ClassUnavailable},
	// The hash slot is leaving, or left while the script ran: every key it touches is
	// declared. The first one goes on: "… 'get' in script because undeclared keys were
	// accessed during rehashing of the slot".
	{"Unable to execute command ", ClassRedirect},
	{"Script attempted to access a non local key", ClassRedirect},
	{"Lua script attempted to access a non local key", ClassRedirect},
	{"Can't write to slot being migrated", ClassRedirect}, // Kvrocks
	// Garnet's BUSY.
	{"Lua script exceeded configured timeout", ClassUnavailable},
	{"Error server busy", ClassUnavailable},
	// The NOSCRIPT of FCALL.
	{"Function not found", ClassNoScript},
	// An inner command that the ACL rejects, up to 7.0 and since 7.2.
	{"The user executing the script ", ClassPermission},
	{"ACL failure in script", ClassPermission},
	// Garnet, whose operator has to allow scripts.
	{"This instance has Lua scripting support disabled", ClassPermission},
}
