package operator

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
)

// rule is a finding that follows directly from what a server says. In What, ${name} is what INFO
// or CONFIG says, or how often a command was called.
type rule struct {
	ID               string
	Level            Level
	When             func(*facts) bool
	What, Effect, Do string
}

// rules are what Check searches for first. Of several findings with one ID the first is shown.
var rules = []rule{
	{ID: "replica", Level: Failing, When: func(f *facts) bool { return f.Role == "slave" },
		What:   "this server is a replica of ${master_host}:${master_port}",
		Effect: "it rejects writes, so each decision is made locally, within the process's claim",
		Do:     "connect to the master, through Sentinel or the endpoint for writes"},
	{ID: "loading", Level: Failing, When: func(f *facts) bool { return f.info["loading"] == "1" },
		What:   "the server is loading its data",
		Effect: "decisions are made locally until it has",
		Do:     "wait; a smaller data set or a replica shortens that"},
	{ID: "cluster-down", Level: Failing, When: func(f *facts) bool { return f.info["cluster_state"] != "" && f.info["cluster_state"] != "ok" },
		What:   "the cluster does not serve all hash slots (cluster_state ${cluster_state})",
		Effect: "decisions on the keys of missing slots are made locally; with cluster-require-full-coverage yes those on all keys",
		Do:     "bring the missing masters back: redis-cli --cluster check"},
	{ID: "replicas-just-enough", Level: Risk, When: func(f *facts) bool { return f.spareReplicas() == 0 },
		What:   "min-replicas-to-write is ${min-replicas-to-write}, and there are as many replicas",
		Effect: "when one of them is restarted, Redis rejects writes, and all decisions are made locally",
		Do:     "add a replica, or lower min-replicas-to-write"},
	{ID: "replicas-missing", Level: Failing, When: func(f *facts) bool { return f.spareReplicas() < 0 },
		What:   "min-replicas-to-write is ${min-replicas-to-write}, but only ${min_slaves_good_slaves} follow",
		Effect: "Redis rejects writes (NOREPLICAS), so all decisions are made locally",
		Do:     "bring the replicas back, or lower min-replicas-to-write"},
	{ID: "save-failed", Level: Failing, When: func(f *facts) bool {
		return f.info["rdb_last_bgsave_status"] == "err" || f.info["aof_last_write_status"] == "err"
	},
		What:   "the last attempt to save the data failed",
		Effect: "with stop-writes-on-bgsave-error yes, Redis rejects writes, and all decisions are made locally",
		Do:     "make room on the disk of Redis, or set stop-writes-on-bgsave-error no where it holds only limits"},
	{ID: "version", Level: Failing, When: func(f *facts) bool { return f.major() < 6 },
		What:   "the server is Redis ${redis_version}",
		Effect: "the scripts need commands of 6.0, so that decisions may be made locally",
		Do:     "upgrade to 6.0 or later"},
	{ID: "version", Level: Note, When: func(f *facts) bool { return f.major() == 6 },
		What:   "the server is Redis ${redis_version}",
		Effect: "Peek is sent as a write, and WithFunctions has no effect, before 7.0",
		Do:     "nothing, or upgrade"},
	{ID: "nearly-full", Level: Risk, When: func(f *facts) bool {
		return f.info["maxmemory_policy"] == "noeviction" && nearly(num(f.info, "used_memory"), num(f.info, "maxmemory"))
	},
		What:   "${used_memory_human} of maxmemory (${maxmemory_human}) are used, under noeviction",
		Effect: "when it is full, Redis rejects writes (OOM), and all decisions are made locally",
		Do:     "raise maxmemory, or remove data"},
	{ID: "evicted", Level: Risk, When: func(f *facts) bool { return num(f.info, "evicted_keys") != 0 },
		What:   "${evicted_keys} keys have been evicted since the start",
		Effect: "a limit of which a key is evicted admits a burst more than it should",
		Do:     "raise maxmemory: see Sizing in docs/operations.md"},
	{ID: "maxmemory", Level: Note, When: func(f *facts) bool { return f.info["maxmemory"] == "0" },
		What:   "maxmemory is not set",
		Effect: "a flood of keys can use all memory of the machine, which then ends the process of Redis",
		Do:     "set maxmemory, under noeviction"},
	{ID: "stop-writes", Level: Risk, When: func(f *facts) bool { return f.config["stop-writes-on-bgsave-error"] == "yes" && f.config["save"] != "" },
		What:   `stop-writes-on-bgsave-error is yes, and save is "${save}"`,
		Effect: "a full disk, or a fork that fails, makes Redis reject writes, and all decisions local",
		Do:     "set stop-writes-on-bgsave-error no where Redis holds only limits"},
	{ID: "fsync", Level: Risk, When: func(f *facts) bool { return f.config["appendonly"] == "yes" && f.config["appendfsync"] == "always" },
		What:   "appendfsync is always",
		Effect: "each decision waits for the disk",
		Do:     "set appendfsync everysec: a crash then loses a second of charges"},
	{ID: "persistence", Level: Note, When: func(f *facts) bool { return f.config["appendonly"] == "no" && f.config["save"] == "" },
		What:   "nothing is saved to disk (save is empty, appendonly is no)",
		Effect: "a restart gives each key one burst more, and loses blocks and the tables of limits",
		Do:     "set appendonly yes and appendfsync everysec if that matters"},
	{ID: "timeout", Level: Risk, When: func(f *facts) bool { t := num(f.config, "timeout"); return t > 0 && t < 300 },
		What:   "Redis closes connections that are idle for ${timeout} s (timeout)",
		Effect: "the first decisions after a pause find closed connections, and may be made locally",
		Do:     "set timeout 0 or a larger one, or ConnMaxIdleTime of the client below it"},
	{ID: "maxclients", Level: Risk, When: func(f *facts) bool { return nearly(num(f.info, "connected_clients"), num(f.config, "maxclients")) },
		What:   "${connected_clients} of ${maxclients} connections (maxclients) are used",
		Effect: "processes that get no connection decide locally, as in an outage",
		Do:     "raise maxclients, or lower the PoolSize of the clients"},
	{ID: "open", Level: Risk, When: func(f *facts) bool {
		return f.config["protected-mode"] == "no" && f.config["requirepass"] == "" && f.config["aclfile"] == "" && !onlyLoopback(f.config["bind"])
	},
		What:   `no password is needed (requirepass is empty, protected-mode is no, bind is "${bind}")`,
		Effect: "who reaches the port can remove all limits",
		Do:     "set requirepass, or users by ACL"},
	{ID: "full-coverage", Level: Risk, When: func(f *facts) bool {
		return f.info["cluster_enabled"] == "1" && f.config["cluster-require-full-coverage"] == "yes"
	},
		What:   "cluster-require-full-coverage is yes",
		Effect: "while one master without a replica is down, the others reject all keys, so that all decisions are local",
		Do:     "set cluster-require-full-coverage no"},
	{ID: "plain-client", Level: Risk, When: func(f *facts) bool { return f.info["cluster_enabled"] == "1" && !f.clustered },
		What:   "this is a node of a cluster, and the connection is that of one server",
		Effect: "keys of other nodes are redirected, and decisions on them are made locally",
		Do:     "use a ClusterClient"},
	{ID: "no-replica", Level: Note, When: func(f *facts) bool { return f.Role == "master" && f.info["connected_slaves"] == "0" },
		What:   "no replica follows this server",
		Effect: "while it is down, decisions are made locally",
		Do:     "add a replica, with Sentinel or as a cluster, if that is too long"},
	{ID: "keepalive", Level: Risk, When: func(f *facts) bool { return f.config["tcp-keepalive"] == "0" },
		What:   "tcp-keepalive is 0",
		Effect: "connections of processes that vanished stay until maxclients is reached, and firewalls forget idle ones",
		Do:     "set tcp-keepalive 300"},
	{ID: "notifications", Level: Risk, When: func(f *facts) bool {
		flags := f.config["notify-keyspace-events"]
		return strings.ContainsAny(flags, "KE") && strings.ContainsAny(flags, "Agx$hzt")
	},
		What:   `notify-keyspace-events is "${notify-keyspace-events}"`,
		Effect: "each write and expiry of a limiter is published, which costs Redis CPU for each decision",
		Do:     "leave out the classes that no program listens to"},
	{ID: "plain-text", Level: Note, When: func(f *facts) bool { return f.remote && !f.tls && f.config["requirepass"] != "" },
		What:   "the connection is not encrypted",
		Effect: "who can read the network can read the password and the keys",
		Do:     "use rediss:// if the network is not yours alone"},
	{ID: "keys", Level: Risk, When: func(f *facts) bool { return f.calls("keys") != "" },
		What:   "KEYS was called ${keys} times since the start",
		Effect: "it walks over all keys at once, and no decision is made meanwhile",
		Do:     "find the program, and use SCAN"},
	{ID: "flushed", Level: Note, When: func(f *facts) bool { return f.calls("flushall") != "" },
		What:   "FLUSHALL was called ${flushall} times since the start",
		Effect: "each time all limits start again, and blocks and tables of limits are lost",
		Do:     "give limits a Redis of their own"},
	{ID: "flushed", Level: Note, When: func(f *facts) bool { return f.calls("flushdb") != "" },
		What:   "FLUSHDB was called ${flushdb} times since the start",
		Effect: "each time all limits start again, and blocks and tables of limits are lost",
		Do:     "give limits a Redis of their own"},
	{ID: "info", Level: Note, When: func(f *facts) bool { return f.infoErr != nil },
		What:   "INFO cannot be read: ${info_error}",
		Effect: "the version, the role, memory and what was evicted are not known, and were not checked",
		Do:     "check with a user that has +info and +config|get; limiters need neither"},
	{ID: "config", Level: Note, When: func(f *facts) bool { return f.configErr != nil },
		What:   "CONFIG cannot be read: ${config_error}",
		Effect: "persistence, replicas and timeouts were not checked",
		Do:     "check with a user that has +config|get; managed servers often do not show it"},
}

// trials search for what must be computed from it.
var trials = []func(*facts) *Finding{scriptsFail, slow, spiky, clockOff, evicts, laggingReplicas, scriptsForever, longForks}

func (r *rule) of(f *facts) *Finding {
	if !r.When(f) {
		return nil
	}
	what := os.Expand(r.What, func(name string) string {
		switch name {
		case "info_error":
			return f.infoErr.Error()
		case "config_error":
			return f.configErr.Error()
		}
		return cmp.Or(f.info[name], f.config[name], f.calls(name))
	})
	return &Finding{ID: r.ID, Level: r.Level, What: what, Effect: r.Effect, Do: r.Do}
}

// spareReplicas is how many there are beyond those without which Redis rejects writes, 1 where
// it never does.
func (f *facts) spareReplicas() int64 {
	need := num(f.config, "min-replicas-to-write")
	if need == 0 || f.info["min_slaves_good_slaves"] == "" {
		return 1
	}
	return num(f.info, "min_slaves_good_slaves") - need
}

// major is of the version of the server, 7 where it says none.
func (f *facts) major() int {
	text, _, _ := strings.Cut(f.Version, ".")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 7
	}
	return n
}

// nearly is whether four fifths are used of what is not without limit.
func nearly(used, most int64) bool { return most > 0 && used >= most*8/10 }

func scriptsFail(f *facts) *Finding {
	what, err := f.denied()
	if err == nil {
		return nil
	}
	text, _, _ := strings.Cut(err.Error(), " script: ") // and where in the script
	found := &Finding{ID: "scripts", Level: Failing,
		What:   fmt.Sprintf("limiters cannot do their work here (%s): %s", strings.Join(what, ", "), text),
		Effect: "each decision of these is made locally, by the fallback"}
	switch {
	case breaker.Classify(context.Background(), err) == breaker.ClassPermission:
		found.ID, found.Do = "permissions", "give the user the permissions in docs/operations.md"
	case strings.Contains(text, "unknown command"):
		found.ID, found.Do = "commands", "the command is disabled or renamed (rename-command): limiters need it"
	case redis.HasErrorPrefix(err, "OOM"):
		found.ID, found.Do = "out-of-memory", "raise maxmemory, or remove data"
	case redis.HasErrorPrefix(err, "NOREPLICAS"):
		found.ID, found.Do = "replicas-missing", "bring the replicas back, or lower min-replicas-to-write"
	case redis.HasErrorPrefix(err, "READONLY"):
		found.ID, found.Do = "replica", "connect to the master, through Sentinel or the endpoint for writes"
	case redis.HasErrorPrefix(err, "MISCONF"):
		found.ID, found.Do = "save-failed", "make room on the disk of Redis, or set stop-writes-on-bgsave-error no"
	default:
		found.Do = "the runbook in docs/operations.md has a row for each kind of error"
	}
	return found
}

func slow(f *facts) *Finding {
	p50 := time.Duration(f.P50)
	switch {
	case p50 > budget/2:
		return &Finding{ID: "far", Level: Failing, What: fmt.Sprintf("a round trip takes %v (median of %d, from here)", p50.Round(10*time.Microsecond), pings),
			Effect: fmt.Sprintf("answers that take more than half of the budget of %v open the breaker, so that decisions are made locally", budget),
			Do:     "set WithBudget to at least four round trips, or move Redis closer"}
	case p50 > budget/10:
		return &Finding{ID: "far", Level: Risk, What: fmt.Sprintf("a round trip takes %v (median of %d, from here)", p50.Round(10*time.Microsecond), pings),
			Effect: "each decision takes at least as long, and a slow moment more than the budget", Do: "consider WithLease, a larger WithBudget, or a Redis that is closer"}
	}
	return nil
}

func spiky(f *facts) *Finding {
	if worst := time.Duration(f.P99); worst > budget/2 && time.Duration(f.P50) <= budget/2 {
		return &Finding{ID: "spikes", Level: Note, What: fmt.Sprintf("one of %d round trips took %v, the median is %v", pings, worst.Round(10*time.Microsecond), time.Duration(f.P50).Round(10*time.Microsecond)),
			Effect: "decisions in such a moment are made locally", Do: "check SLOWLOG and LATENCY DOCTOR, the CPU of Redis, and neighbours on its machine"}
	}
	return nil
}

// clockTolerance is what round trips and clocks that are kept by NTP explain.
const clockTolerance = time.Second

func clockOff(f *facts) *Finding {
	if ahead := time.Duration(f.Clock); ahead.Abs() > clockTolerance {
		word := "ahead of"
		if ahead < 0 {
			word = "behind"
		}
		return &Finding{ID: "clock", Level: Risk, What: fmt.Sprintf("the clock of Redis is %v %s this machine's", ahead.Abs().Round(time.Millisecond), word),
			Effect: "limits in Redis count by its own clock and are exact, but windows begin at another time than in local decisions, and a failover to a server with another clock is a step of the clock",
			Do:     "keep all clocks by NTP"}
	}
	return nil
}

func evicts(f *facts) *Finding {
	policy := f.info["maxmemory_policy"]
	if policy == "" || policy == "noeviction" {
		return nil
	}
	found := &Finding{ID: "eviction-policy", Level: Risk, What: "maxmemory-policy is " + policy,
		Effect: "when memory is full, keys of limiters are evicted: their limits start again with a full burst, and blocks are lost",
		Do:     "give it memory enough, or set noeviction, where a full Redis makes decisions local and loses nothing; volatile-ttl loses least"}
	if num(f.info, "maxmemory") == 0 || policy == "volatile-ttl" {
		found.Level = Note
	}
	if strings.HasPrefix(policy, "allkeys-") {
		found.Effect += "; tables of limits are evicted, too"
	}
	return found
}

func onlyLoopback(bind string) bool {
	for addr := range strings.FieldsSeq(bind) {
		if addr = strings.TrimPrefix(addr, "-"); !strings.HasPrefix(addr, "127.") && addr != "::1" && addr != "localhost" {
			return false
		}
	}
	return bind != ""
}

func laggingReplicas(f *facts) *Finding {
	for name, text := range f.info {
		if !strings.HasPrefix(name, "slave") || !strings.Contains(text, "state=") {
			continue
		}
		fields := map[string]string{}
		for field := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(field, "=")
			fields[key] = value
		}
		if lag := num(fields, "lag"); fields["state"] != "online" || lag > 5 {
			return &Finding{ID: "replica-lag", Level: Risk, What: fmt.Sprintf("the replica %s:%s is %s, and was heard %d s ago", fields["ip"], fields["port"], fields["state"], lag),
				Effect: "a failover to it loses what it has not received: those units are admitted again", Do: "check its link and its load"}
		}
	}
	return nil
}

func scriptsForever(f *facts) *Finding {
	name := "busy-reply-threshold"
	limit, known := f.config[name]
	if !known {
		name = "lua-time-limit"
		limit, known = f.config[name]
	}
	if ms, err := strconv.Atoi(limit); !known || err != nil || ms > 0 && ms <= 10_000 {
		return nil
	}
	return &Finding{ID: "busy", Level: Risk, What: name + " is " + limit,
		Effect: "while a script of another program runs, Redis answers no call and cannot be asked to end it; decisions wait for their whole budget until the breaker opens", Do: "set " + name + " 5000"}
}

func longForks(f *facts) *Finding {
	if us := num(f.info, "latest_fork_usec"); us > budget.Microseconds() {
		return &Finding{ID: "fork", Level: Risk, What: fmt.Sprintf("the last fork, for a save or a replica, took %v", (time.Duration(us) * time.Microsecond).Round(time.Millisecond)),
			Effect: "meanwhile Redis answers no call: decisions are made locally", Do: "save on a replica, use a smaller server, or disable transparent huge pages"}
	}
	return nil
}

// calls is how often a command was called since the start, "" if never.
func (f *facts) calls(command string) string {
	calls, _, _ := strings.Cut(strings.TrimPrefix(f.info["cmdstat_"+command], "calls="), ",")
	return calls
}
