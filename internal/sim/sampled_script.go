package sim

import "maps"

// sampledPrefix is that of sampled limiters, and sampledProcesses the key of their processes.
const (
	sampledPrefix    = "sampled"
	sampledProcesses = sampledPrefix + ":v1:sampled:{all}:p"
)

const hour = 3_600_000_000

// report is sampled.lua.
func (r *run) report(keys, argv []string) []int64 {
	process, life := argv[1], number(argv[2])
	sums, processes, mine := r.loadSet(keys[0]), r.loadSet(keys[1]), r.loadSet(keys[2])
	reply := []int64{0, 0}
	_, has := mine.set[""]
	if _, lives := processes.set[process]; sums.set[""] == 0 || len(processes.set) == 0 || lives && !has {
		clear(sums.set)
		sums.set[""] = r.now + number(process)
	}
	if mine.set[""] != sums.set[""] {
		clear(mine.set)
		mine.set[""] = sums.set[""]
	}
	sum, own := maps.Clone(sums.set), maps.Clone(mine.set)
	for i := 3; i < len(argv); i += 2 {
		field, rate := argv[i], number(argv[i+1])
		all := max(rate, sum[field]-own[field]+rate)
		put(mine.set, field, rate)
		put(sums.set, field, all)
		reply = append(reply, all)
	}
	processes.set[process] = r.now + life
	for other, until := range processes.set {
		if until > r.now+hour/4 {
			processes.set[other] = r.now + life
		}
	}
	reply[1] = dead(processes.set, r.now)
	for i, v := range []*value{sums, processes, mine} {
		v.expires = r.now + hour
		r.change(keys[i], v)
	}
	reply[0] = int64(len(processes.set)) - below(processes.set, r.now)
	return reply
}

// dead is the process that is dead for longest, or 0.
func dead(processes map[string]int64, now int64) int64 {
	if all := sorted(processes); len(all) > 0 && all[0].score < now {
		return number(all[0].name)
	}
	return 0
}

// put sets a field that is above 0, and takes another one out.
func put(set map[string]int64, field string, n int64) {
	if n > 0 {
		set[field] = n
	} else {
		delete(set, field)
	}
}

// bury is sampled_bury.lua, of a process that has reported few fields: they all fit one page.
func (r *run) bury(keys, argv []string) []int64 {
	process, isDead := argv[1], argv[2] == "1"
	sums, processes, mine := r.loadSet(keys[0]), r.loadSet(keys[1]), r.loadSet(keys[2])
	until, lives := processes.set[process]
	if isDead && (!lives || until >= r.now) {
		return []int64{0, 0}
	}
	era, begun := mine.set[""]
	if era == sums.set[""] {
		for field, rate := range mine.set {
			if field != "" {
				put(sums.set, field, sums.set[field]-rate)
			}
		}
	}
	clear(mine.set)
	delete(processes.set, process)
	if lives && !begun || len(processes.set) == 0 {
		clear(sums.set)
	}
	for i, v := range []*value{sums, processes, mine} {
		r.change(keys[i], v)
	}
	return []int64{1, dead(processes.set, r.now)}
}
