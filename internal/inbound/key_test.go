package inbound_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/inbound"
)

func TestShort(t *testing.T) {
	long := strings.Repeat("x", 129)
	hash := inbound.Short(long)
	for _, key := range []string{"", "a", long[:128], inbound.Shared} {
		if got := inbound.Short(key); got != key {
			t.Errorf("%q: %q", key, got)
		}
	}
	if !strings.HasPrefix(hash, "sha256:") || len(hash) != 71 {
		t.Errorf("a long key is %q", hash)
	}
	if inbound.Short(hash) == hash {
		t.Error("a hash is its own key: whoever names it has that of another")
	}
}

func TestIP(t *testing.T) {
	for s, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := inbound.IP(netip.MustParseAddr(s)); got != want {
			t.Errorf("%s: %q, want %q", s, got, want)
		}
	}
	if got := inbound.IP(netip.Addr{}); got != "" {
		t.Errorf("no address: %q", got)
	}
}

func TestCredentials(t *testing.T) {
	for header, want := range map[string]string{"Bearer abc": "abc", "bearer  abc ": "abc", "Basic abc": "", "Bearer": "", "Bearer ": "", "": ""} {
		if got := inbound.Bearer(header); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
	if got := inbound.Credential("abc"); got != "key:ba7816bf8f01cfea414140de5dae2223" {
		t.Error(got)
	}
	if inbound.Credential("") != "" {
		t.Error("no credential has a key")
	}
}

func FuzzJoined(f *testing.F) {
	f.Add("1:1", "1", "1", "1:1")
	f.Add("", "", "", "0:")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		join := func(parts ...string) string {
			var keys []inbound.Key[int]
			for _, part := range parts {
				keys = append(keys, inbound.Key[int]{Of: func(context.Context, int) (string, error) { return part, nil }})
			}
			joined, err := inbound.Join(keys).Of(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			return joined
		}
		x, y := join(a, b), join(c, d)
		if same := a == c && b == d; (x == y) != same {
			t.Errorf("%q, %q and %q, %q: %q and %q", a, b, c, d, x, y)
		}
	})
}
