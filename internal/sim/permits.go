package sim

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The scores of permits_state.lua.
const (
	critical  = -2_500_000_000_000
	others    = -1_500_000_000_000
	placeLife = 4_000_000_000_000_000
)

// member is one of a sorted set.
type member struct {
	name  string
	score int64
}

// sorted lists a sorted set from the lowest score.
func sorted(set map[string]int64) []member {
	all := make([]member, 0, len(set))
	for name, score := range set {
		all = append(all, member{name, score})
	}
	slices.SortFunc(all, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.name, b.name))
	})
	return all
}

// below counts the members with a score below most.
func below(set map[string]int64, most int64) (n int64) {
	for _, score := range set {
		if score < most {
			n++
		}
	}
	return n
}

// keepFor lets v live for us µs and a second more, unless it lives longer already than us.
func (r *run) keepFor(v *value, us int64) {
	if life := max(1_000_000, (us+999)/1000*1000); v.expires < r.now+life {
		v.expires = r.now + life + 1_000_000
	}
}

// ended is that of permits_state.lua.
func (r *run) ended(set map[string]int64, ttl int64) (n int64) {
	for name, score := range set {
		if score >= placeLife || score <= r.now+ttl {
			continue
		}
		life := ttl
		if i := strings.LastIndexByte(name, '/'); i >= 0 {
			life = max(life, number(name[i+1:]))
		}
		set[name] = min(score, r.now+life)
	}
	return dropEnded(set, r.now)
}

// dropEnded takes out the permits that have ended.
func dropEnded(set map[string]int64, now int64) (n int64) {
	for name, score := range set {
		if score >= 0 && score <= now {
			delete(set, name)
			n++
		}
	}
	return n
}

// permits is permits.lua.
func (r *run) permits(keys, argv []string) []int64 {
	reply, gone := []int64{r.now}, int(number(argv[2]))
	rest := argv[3:]
	for _, key := range keys[:gone] {
		v := r.loadSet(key)
		before := maps.Clone(v.set)
		delete(v.set, "h"+rest[0])
		if rest[1] == "1" {
			delete(v.set, "q"+rest[0])
			delete(v.set, "w"+rest[0])
		}
		r.saveSet(key, before, v)
		rest = rest[2:]
	}
	var how []string
	for _, key := range keys[gone:] {
		if rest[0] == "-" {
			how, rest = rest[1:8], rest[8:]
		}
		n := number(rest[0])
		reply = append(reply, r.acquire(key, how, rest[1:1+n])...)
		rest = rest[1+n:]
	}
	return reply
}

// acquire asks for permits of one id.
func (r *run) acquire(key string, how, callers []string) []int64 {
	f := numbers(how[:4])
	most, keep, ttl, patience := f[0], f[1], f[2], f[3]
	wait, rushed, again := how[4] == "1", how[5] == "1", how[6] == "1"
	v := r.loadSet(key)
	set, before := v.set, maps.Clone(v.set)
	waiting := below(set, 0)
	count := int64(len(set)) - 2*waiting
	if count > 0 && (len(callers) == 0 || waiting > 0 || count+int64(len(callers)) > most-keep) {
		count -= r.ended(set, ttl)
	}
	if waiting > 0 {
		latest := placeLife + r.now + patience
		for name, score := range maps.Clone(set) {
			switch {
			case score > latest:
				set[name] = latest
			case score >= placeLife && score <= placeLife+r.now:
				delete(set, name)
				delete(set, "q"+name[1:])
				waiting--
			}
		}
	}
	reply, ahead, longest := []int64{0, 0, 0}, int64(-1), int64(0)
	for _, caller := range callers {
		free, ranked, place := most-count, waiting, int64(-1)
		if rushed {
			ranked = below(set, others)
		} else {
			free -= keep
		}
		if score, queued := set["q"+caller]; queued {
			ranked, place = below(set, score), score // no two have one place
		}
		_, mine := set["h"+caller]
		if mine = mine && again; mine || ranked < free {
			set["h"+caller] = r.now + ttl
			longest = max(longest, ttl)
			if !mine {
				count++
				r.granted = append(r.granted, key)
			}
			if place != -1 {
				delete(set, "q"+caller)
				delete(set, "w"+caller)
				waiting--
			}
			reply = append(reply, 1)
			continue
		}
		if ahead < 0 {
			ahead = ranked - free
		}
		if wait {
			if place == -1 {
				set["q"+caller] = nextPlace(set, waiting, rushed)
				waiting++
			}
			set["w"+caller] = placeLife + r.now + patience
			longest = max(longest, patience)
		}
		reply = append(reply, 0)
	}
	if longest > 0 {
		r.keepFor(v, longest)
	}
	reply[0], reply[1] = count, max(0, ahead)
	if ahead >= 0 && count > 0 {
		reply[2] = sorted(set)[waiting].score - r.now
	}
	r.saveSet(key, before, v)
	return reply
}

// nextPlace is the place behind the last one of a rank.
func nextPlace(set map[string]int64, waiting int64, rushed bool) int64 {
	base, n := int64(others), waiting
	if rushed {
		base, n = critical, below(set, others)
	}
	if n == 0 {
		return base
	}
	return max(base, sorted(set)[n-1].score+1)
}

// keep is permits_keep.lua.
func (r *run) keep(keys, argv []string) (reply []int64) {
	ttl, rest := number(argv[1]), argv[2:]
	for _, key := range keys {
		n, _ := strconv.Atoi(rest[0])
		v := r.loadSet(key)
		before := maps.Clone(v.set)
		dropEnded(v.set, r.now)
		for _, caller := range rest[1 : 1+n] {
			_, has := v.set["h"+caller]
			v.set["h"+caller] = r.now + ttl
			reply = append(reply, 1-one(has))
		}
		rest = rest[1+n:]
		r.keepFor(v, ttl)
		r.saveSet(key, before, v)
	}
	return reply
}
