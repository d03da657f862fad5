package breaker

import "strings"

// classifyReply classes an error reply by its text. What no rule knows, redis.Nil
// among it, is ClassBug.
func classifyReply(msg string) Class {
	return classifyText(innerText(msg))
}

// innerText removes what servers put in front of the words that matter:
//
//	ERR Error running script (call to f_<sha>): @user_script:3: @user_script: 3: -OOM command…   (6.2, Dragonfly)
//	@user_script: 3: -OOM command…       (6.2, from redis.pcall)
//	ERR OOM command…                     (Kvrocks)
//
// Since 7.0 the position of the error is a suffix, which no rule here reads.
func innerText(msg string) string {
	msg = strings.TrimPrefix(msg, "ERR ")
	if rest, ok := strings.CutPrefix(msg, "Error running script"); ok {
		// Either " (call to f_<sha>): …" or ": …"; the name holds no colon.
		_, msg, _ = strings.Cut(rest, ": ")
	}
	for strings.HasPrefix(msg, "@user_script:") {
		_, rest, _ := strings.Cut(msg, ":")
		line, after, _ := strings.Cut(rest, ": ")
		if strings.Trim(line, " 0123456789") != "" {
			break
		}
		msg = after
	}
	msg = strings.TrimPrefix(msg, "-")
	return strings.TrimPrefix(msg, "ERR ")
}

// classifyText classes a reply by its code, the first word, or, for the replies
// whose code is the catch-all ERR, by how their sentence begins.
func classifyText(msg string) Class {
	code, _, _ := strings.Cut(msg, " ")
	switch code {
	case "READONLY", "OOM", "MISCONF", "NOREPLICAS":
		return ClassReadOnly
	case "LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "NOAUTH", "WRONGPASS",
		"DENIED": // protected mode: the server answers this instead of serving
		return ClassUnavailable
	case "NOSCRIPT":
		return ClassNoScript
	case "MOVED", "ASK", "TRYAGAIN",
		"REDIRECT": // Valkey, from a primary that became a replica
		return ClassRedirect
	case "NOPERM":
		return ClassPermission
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
	// The slot left while the script ran: every key it touches is declared.
	{"Script attempted to access a non local key", ClassRedirect},
	{"Lua script attempted to access a non local key", ClassRedirect},
	// The NOSCRIPT of FCALL.
	{"Function not found", ClassNoScript},
	// An inner command the ACL refuses, up to 7.0 and since 7.2.
	{"The user executing the script ", ClassPermission},
	{"ACL failure in script", ClassPermission},
}
