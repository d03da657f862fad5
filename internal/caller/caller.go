// Package caller makes rate-limit keys from what identifies a caller, the same for HTTP and
// gRPC.
package caller

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

const (
	// Shared is the key of all who have none. Nothing that a caller sends may be it.
	Shared = "\x00"
	// maxKey is the length from which a key is replaced by its hash: limiters
	// remember keys.
	maxKey = 128

	hashed = "sha256:"
)

// Short hashes long keys, and those that look like a hash, which would otherwise be
// somebody else's.
func Short(key string) string {
	if len(key) <= maxKey && !strings.HasPrefix(key, hashed) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashed + hex.EncodeToString(sum[:])
}

// IP is the key of an address, of IPv6 its first 64 bits; "" of the zero Addr.
func IP(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	switch {
	case !a.IsValid():
		return ""
	case a.Is4():
		return a.String()
	}
	p, _ := a.Prefix(64)
	return p.String()
}

// Credential is the key of a credential, which does not say it; "" of none.
func Credential(v string) string {
	if v == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(v))
	return "key:" + hex.EncodeToString(sum[:16])
}

// Bearer is the credential of an Authorization of that scheme; "" of any other.
func Bearer(authorization string) string {
	scheme, credential, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(credential)
}

// Joined is several keys as one.
type Joined struct{ b strings.Builder }

// Add adds a key, with its length, so that no two different lists are the same.
func (j *Joined) Add(key string) {
	key = Short(key)
	j.b.WriteString(strconv.Itoa(len(key)))
	j.b.WriteByte(':')
	j.b.WriteString(key)
}

// String is all of them.
func (j *Joined) String() string { return j.b.String() }
