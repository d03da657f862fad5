package lua

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// TestNamesOfKeys: what the documents say of each key.
func TestNamesOfKeys(t *testing.T) {
	n := NewNamer("p")
	texts, times := n.Published()
	for want, got := range map[string]string{
		"p:v1:permits:{k}": n.Permits("k"), "p:v1:probe:{k}": n.Probe("k"), "p:v1:learnt:{k}": n.Learnt("k"), "p:v1:limits:{k}": n.Limits("k"),
		"p:v1:peers": n.Peers(0), "p:v1:peers:1": n.Peers(1), "p:v1:back:gcra:{p:v1:peers}": n.Back(n.Peers(0), "gcra"),
		"p:v1:sampled:{all}": n.SampledSums(), "p:v1:sampled:{all}:p": n.SampledProcesses(), "p:v1:published:{all}": texts, "p:v1:published:{all}:t": times,
		"k\x000f": PartKey("k", 15), "k\x0010": PartKey("k", 16), "k\x003f": PartKey("k", MaxParts-1), "k": n.KeysOf(algo.GCRA, "k").ID(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestEncodedIDs: what is not plain is escaped, and what is then longer than 128 bytes is known by its hash.
func TestEncodedIDs(t *testing.T) {
	for id, want := range map[string]string{
		"": "", "a:1": "a:1", "!": "!", "~": "~", "\u00fc": "\u00fc", " ": "%20", "\x00\x1f": "%00%1F", "\x7f": "%7F", "{a}%": "%7Ba%7D%25",
		strings.Repeat("x", 128): strings.Repeat("x", 128), strings.Repeat("x", 125) + " ": strings.Repeat("x", 125) + "%20",
		strings.Repeat("x", 129):       "%h",
		strings.Repeat("x", 126) + " ": "%h",
	} {
		got := EncodeID(id)
		if strings.HasPrefix(want, "%h") {
			if !strings.HasPrefix(got, "%h") || len(got) != 66 {
				t.Errorf("%q: %q is no hash", id, got)
			}
		} else if got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
	if CheckPrefix(strings.Repeat("p", 64)) != "" || CheckPrefix(strings.Repeat("p", 65)) == "" {
		t.Error("a prefix has up to 64 bytes")
	}
}

// TestReadState: each number of a text stands where the scripts have written it, for each algorithm.
func TestReadState(t *testing.T) {
	for _, kind := range algo.Kinds {
		if kind == algo.SlidingWindowLog {
			continue
		}
		s, p, err := ReadState(kind, "11:12:3:4:5:6")
		want, limit := algo.State{At: 11, Birth: 12, V: 6}, algo.Params{Kind: kind, Num: 3, Den: 4}
		switch kind {
		case algo.FixedWindow:
		case algo.SlidingWindowCounter:
			want.W = 5
		default:
			want.Num, want.W, want.Cap, limit.Cap = 3, 4, 5, 5
		}
		if err != nil || !reflect.DeepEqual(s, want) || !reflect.DeepEqual(p, limit) {
			t.Errorf("%v: %+v, %+v, %v", kind, s, p, err)
		}
		want.Until, want.Length = 21, 22
		if s, p, err = ReadState(kind, "11:12:21:22:3:4:5:6"); err != nil || !reflect.DeepEqual(s, want) || !reflect.DeepEqual(p, limit) {
			t.Errorf("%v, blocked: %+v, %+v, %v", kind, s, p, err)
		}
		for text, ok := range map[string]bool{
			fmt.Sprint("11:12:3:4:5:", int64(algo.MaxExact)): true, fmt.Sprint("11:12:3:4:5:", int64(algo.MaxExact+1)): false, "11:12:3:4:5:-1": false, "0:0:0:0:0:0": true,
			"1:0:0:0:0:0": false, "0:0:1:0:0:0": false, "0:0:0:1:0:0": false, "1:2:3:4:5": false, "1:2:3:4:5:6:7": false, "1:2:3:4:5:6:7:8:9": false,
		} {
			var reply *ReplyError
			if _, _, err := ReadState(kind, text); ok != (err == nil) || !ok && !errors.As(err, &reply) {
				t.Errorf("%v: %q: %v", kind, text, err)
			}
		}
	}
}

// TestReadMembers: those of a log, and of the permits of a key.
func TestReadMembers(t *testing.T) {
	s, err := ReadLog([]redis.Z{{Member: "block:15", Score: -7}, {Member: "a", Score: 0}, {Member: "b", Score: 9}})
	if want := (algo.State{Log: []algo.Cell{{T: 0, V: 1}, {T: 9, V: 1}}, V: 2, Until: 7, Length: 15}); err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"block:x", "other"} {
		var reply *ReplyError
		if _, err := ReadLog([]redis.Z{{Member: bad, Score: -7}}); !errors.As(err, &reply) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	const now, life = 1_760_000_000_000_000, 4_000_000_000_000_000
	got := ReadPermits([]redis.Z{
		{Member: "qw", Score: -1_500_000_000_000}, {Member: "hended", Score: now}, {Member: "hlast", Score: now + 7}, {Member: "hfirst", Score: now + 1},
		{Member: "wended", Score: life + now}, {Member: "ww", Score: life + now + 1}, {Member: "wx", Score: life + now + 4}, {Member: "x", Score: now + 9},
	}, now)
	if got != (PermitsHeld{Held: 2, Waiting: 2, LastEnd: now + 7}) {
		t.Errorf("%+v", got)
	}
}
