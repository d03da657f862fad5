package analytics

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/lua"
	"github.com/holdfast-go/holdfast/internal/topk"
)

// readAtOnce is how many reports one command reads, so that none keeps Redis long.
const readAtOnce = 32

// FleetReport is what the processes of a fleet have published.
type FleetReport struct {
	At time.Time `json:"at"` // by the clock of Redis
	// Processes are those that have published within three of their intervals, by name. Unreadable is how many others
	// published what cannot be read, as another version of this library may.
	Processes  []ProcessReport `json:"processes"`
	Unreadable int             `json:"unreadable,omitempty"`
}

// ReadFleet reads what the processes of a prefix have published. The errors are those of the client, and
// limiter.ErrInvalidConfig for a prefix that limiter.WithPrefix rejects.
func ReadFleet(ctx context.Context, rdb redis.UniversalClient, prefix string) (*FleetReport, error) {
	if rule := lua.CheckPrefix(prefix); rule != "" {
		return nil, configerr.In("analytics", configerr.New("prefix", prefix, rule))
	}
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	texts, times := lua.NewNamer(prefix).Published()
	names, err := rdb.ZRangeByScore(ctx, times, &redis.ZRangeBy{Min: strconv.FormatInt(now.UnixMicro(), 10), Max: "+inf"}).Result()
	if err != nil {
		return nil, err
	}
	f := &FleetReport{At: now.UTC(), Processes: []ProcessReport{}}
	for some := range slices.Chunk(names, readAtOnce) {
		found, err := rdb.HMGet(ctx, texts, some...).Result()
		if err != nil {
			return nil, err
		}
		for i := range found {
			text, _ := found[i].(string)
			var r ProcessReport
			if text == "" {
				continue // it has left just now
			}
			when, text, _ := strings.Cut(text, " ")
			at, err := strconv.ParseInt(when, 10, 64)
			if err != nil || json.Unmarshal([]byte(text), &r) != nil {
				f.Unreadable++
				continue
			}
			r.At = time.UnixMicro(at).UTC()
			if r.At.After(f.At) { // published while this was read
				f.At = r.At
			}
			f.Processes = append(f.Processes, r)
		}
	}
	slices.SortFunc(f.Processes, func(a, b ProcessReport) int { return cmp.Compare(a.Process, b.Process) })
	return f, nil
}

// Denials adds up the denials of all processes, by the name of the limiter: of each the n keys that were denied most.
// A key that a process has not published may have been denied there, at most as often as the process says of
// all others: that is in the key's Denied and in its Error, so that Denied - Error is certain. Processes
// with different secrets of WithHashedKeys show different hashes of one key, which are not added up.
func (f *FleetReport) Denials(n int) map[string]Report {
	type tally struct {
		Key
		others int64 // of the processes that have the key
	}
	out := map[string]Report{}
	keys, others := map[string]map[string]*tally{}, map[string]int64{}
	for _, p := range f.Processes {
		for _, l := range p.Limiters {
			if l.Denials == nil {
				continue
			}
			r, known := out[l.Name]
			if !known {
				keys[l.Name] = map[string]*tally{}
			}
			if r.Since.IsZero() || l.Denials.Since.Before(r.Since) {
				r.Since = l.Denials.Since
			}
			r.Denied += l.Denials.Denied
			out[l.Name] = r
			others[l.Name] += l.Denials.Others
			for _, k := range l.Denials.Keys {
				s := keys[l.Name][k.Key]
				if s == nil {
					s = &tally{Key: Key{Key: k.Key}}
					keys[l.Name][k.Key] = s
				}
				s.others += l.Denials.Others
				s.Denied, s.Error, s.Allowed = s.Denied+k.Denied, s.Error+k.Error, s.Allowed+k.Allowed
				s.DeniedUnits = sum(s.DeniedUnits, k.DeniedUnits)
				if k.LastDenied.After(s.LastDenied) {
					s.LastDenied = k.LastDenied
				}
			}
		}
	}
	for name, r := range out {
		r.Keys = make([]Key, 0, len(keys[name]))
		for _, key := range slices.Sorted(maps.Keys(keys[name])) {
			s := keys[name][key]
			missed := others[name] - s.others
			s.Denied, s.Error = s.Denied+missed, s.Error+missed
			r.Keys = append(r.Keys, s.Key)
		}
		slices.SortStableFunc(r.Keys, func(a, b Key) int {
			return cmp.Or(cmp.Compare(b.Denied-b.Error, a.Denied-a.Error), cmp.Compare(b.Denied, a.Denied))
		})
		r.Keys = r.Keys[:min(max(0, n), len(r.Keys))]
		out[name] = r
	}
	return out
}

// ShownKey returns a key as reports show it: as it is, with "sha256:" and its SHA-256 if it is longer than
// 128 bytes, and with a secret as WithHashedKeys does with that secret.
func ShownKey(key string, secret []byte) string {
	key = topk.Kept(key, longestKey)
	if len(secret) == 0 {
		return key
	}
	return hash(key, secret)
}
