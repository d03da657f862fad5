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

// keepFor lets v live for us µs, unless it lives longer already.
func (r *run) keepFor(v *value, us int64) {
	v.expires = max(v.expires, r.now+max(1_000_000, (us+999)/1000*1000))
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

// acquire is permits_acquire.lua.
func (r *run) acquire(key string, argv []string) []int64 {
	f := numbers(argv[2:6])
	most, keep, ttl, patience := f[0], f[1], f[2], f[3]
	wait, rushed, again := argv[6] == "1", argv[7] == "1", argv[8] == "1"
	callers := argv[9:]
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
	reply, ahead, longest := []int64{r.now, 0, 0, 0}, int64(-1), int64(0)
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
	reply[1], reply[2] = count, max(0, ahead)
	if ahead >= 0 && count > 0 {
		reply[3] = sorted(set)[waiting].score - r.now
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
