package analytics_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/analytics"
)

// TestHashedKeys: the key is nowhere, and its hash depends on the secret and on nothing
// else.
func TestHashedKeys(t *testing.T) {
	const key = "203.0.113.77"
	shown := func(key string, opts ...analytics.Option) string {
		top := newTop(t, 10, opts...)
		tell(top, key, 1, false)
		h, err := analytics.Handler(map[string]*analytics.Top{"api": top})
		must(t, err)
		r := top.Report(10)
		for what, text := range map[string]string{
			"one": body(t, ask(top, "GET", "")), "several": body(t, ask(h, "GET", "")),
			"the report": fmt.Sprintf("%+v", r), "the Top as text": fmt.Sprint(r.Keys),
		} {
			if strings.Contains(text, key) {
				t.Errorf("%s shows the key: %s", what, text)
			}
			if !strings.Contains(text, r.Keys[0].Key) {
				t.Errorf("%s does not show %s: %s", what, r.Keys[0].Key, text)
			}
		}
		return r.Keys[0].Key
	}
	secret := []byte("a secret")
	option := analytics.WithHashedKeys(secret)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(key))
	want := hex.EncodeToString(mac.Sum(nil))[:32]
	secret[0] = 'x' // is the caller's again
	if got := shown(key, option); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if shown(key, option) != shown(key, analytics.WithHashedKeys([]byte("a secret"))) {
		t.Error("the same key and secret have different hashes")
	}
	if shown(key, option) == shown(key, analytics.WithHashedKeys([]byte("b secret"))) {
		t.Error("another secret has the same hash")
	}
	if shown(key, option) == shown("203.0.113.78", option) {
		t.Error("another key has the same hash")
	}
	long := strings.Repeat("k", 1000)
	if got := shown(long, option); len(got) != 32 || got == want {
		t.Errorf("a long key is shown as %s", got)
	}

	// Without a secret there is one for the process.
	random := shown(key, analytics.WithHashedKeys(nil))
	if random != shown(key, analytics.WithHashedKeys([]byte{})) {
		t.Error("two in one process have different hashes")
	}
	empty := hmac.New(sha256.New, nil)
	empty.Write([]byte(key))
	plain := sha256.Sum256([]byte(key))
	if random == hex.EncodeToString(empty.Sum(nil))[:32] || random == hex.EncodeToString(plain[:])[:32] {
		t.Errorf("%s is what everybody can compute", random)
	}
}
