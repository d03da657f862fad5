package lua

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// slotPart is what a cluster hashes: what stands between the first { and the
// first } after it, when that is not empty.
func slotPart(key string) string {
	i := strings.IndexByte(key, '{')
	if i < 0 {
		return key
	}
	j := strings.IndexByte(key[i+1:], '}')
	if j <= 0 {
		return key
	}
	return key[i+1 : i+1+j]
}

// FuzzKeys: different ids and algorithms never share a key, and all keys of one id
// share a slot.
func FuzzKeys(f *testing.F) {
	for _, id := range []string{"a", "{a}", "}{", "a}b", "a%7Db", "a:1", "\x00", "ü", "%h", strings.Repeat("x", 129), strings.Repeat("{", 44)} {
		f.Add(id, "a")
		f.Add("customer:42", id)
	}
	n := NewNamer("p")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		seen := map[string]string{}
		for _, id := range []string{a, b} {
			for _, kind := range algo.Kinds {
				key := n.KeysOf(kind, EncodeID(id)).State()
				if got := slotPart(key); got != EncodeID(id) {
					t.Fatalf("id %q: key %q hashes %q, not the id", id, key, got)
				}
				if len(key) > 200 {
					t.Fatalf("key of %d bytes", len(key))
				}
				for i := range len(key) {
					if key[i] <= ' ' || key[i] == 0x7f {
						t.Fatalf("id %q: key %q has a control byte", id, key)
					}
				}
				if other, ok := seen[key]; ok && other != fmt.Sprint(kind, id) {
					t.Fatalf("%v of id %q and %q share the key %q", kind, id, other, key)
				}
				seen[key] = fmt.Sprint(kind, id)
			}
		}
		if a != b && EncodeID(a) == EncodeID(b) {
			t.Fatalf("ids %q and %q are both %q", a, b, EncodeID(a))
		}
	})
}

func TestKeysAreReadable(t *testing.T) {
	k := NewNamer("shop").KeysOf(algo.GCRA, "customer:42")
	if k.State() != "shop:v2:gcra:{customer:42}" {
		t.Errorf("the key is %s", k.State())
	}
}

func TestCheckPrefix(t *testing.T) {
	for _, bad := range []string{"", "a{b", "a}b", "a b", "a\nb", "a%b", strings.Repeat("p", 65)} {
		if CheckPrefix(bad) == "" {
			t.Errorf("prefix %q was accepted", bad)
		}
	}
	if rule := CheckPrefix("my-app:prod"); rule != "" {
		t.Errorf("a good prefix was refused: %s", rule)
	}
}
