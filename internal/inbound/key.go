package inbound

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

// ErrNoKey is for a request without a key.
var ErrNoKey = errors.New("holdfast: the request has no rate-limit key")

// Key finds the rate-limit key of a request of type R. The zero value is not usable. A
// Key is safe for concurrent use if its function is.
type Key[R any] struct {
	Of  func(context.Context, R) (string, error)
	Err error // of its configuration
}

// KeyFunc makes a Key of a function. An empty key, and the one that is shared, are none.
func KeyFunc[R any](of func(context.Context, R) (string, error)) Key[R] {
	return Key[R]{Of: func(ctx context.Context, req R) (string, error) {
		key, err := of(ctx, req)
		if err == nil && (key == "" || key == Shared) {
			err = ErrNoKey
		}
		return key, err
	}}
}

// Some makes a Key of a function that returns "" for none.
func Some[R any](of func(context.Context, R) string) Key[R] {
	return KeyFunc(func(ctx context.Context, req R) (string, error) { return of(ctx, req), nil })
}

// APIKey makes a Key of the first credential that the request has under one of the names;
// get returns the value of a name. authorization is the name whose value has a scheme,
// which must be Bearer.
func APIKey[R any](names []string, authorization string, get func(ctx context.Context, req R, name string) string) Key[R] {
	return Some(func(ctx context.Context, req R) string {
		for _, name := range names {
			v := get(ctx, req, name)
			if name == authorization {
				v = Bearer(v)
			}
			if key := Credential(v); key != "" {
				return key
			}
		}
		return ""
	})
}

// Join makes one Key of several, all of which a request must have.
func Join[R any](keys []Key[R]) Key[R] {
	if len(keys) == 0 {
		return Key[R]{Err: configerr.New("keys", 0, "must be at least 1")}
	}
	for _, k := range keys {
		if k.Err != nil || k.Of == nil {
			return k
		}
	}
	return KeyFunc(func(ctx context.Context, req R) (string, error) {
		var joined []byte
		for _, k := range keys {
			part, err := k.Of(ctx, req)
			if err != nil {
				return "", err
			}
			// With its length, so that no two different lists are the same.
			part = Short(part)
			joined = append(strconv.AppendInt(joined, int64(len(part)), 10), ':')
			joined = append(joined, part...)
		}
		return string(joined), nil
	})
}

const (
	// Shared is the key of all requests that have none. Nothing that a caller sends may be it.
	Shared = "\x00"
	// maxKey is the length from which a key is replaced by its hash: limiters
	// remember keys.
	maxKey = 128

	hashed = "sha256:"
)

// Short hashes long keys, and those that have the form of a hash, which would otherwise be
// the key of another caller.
func Short(key string) string {
	if len(key) <= maxKey && !strings.HasPrefix(key, hashed) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hashed + hex.EncodeToString(sum[:])
}

// Addr reads an address, with a port or without, in its plain form; the zero Addr of anything
// else.
func Addr(s string) netip.Addr {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		ap, _ := netip.ParseAddrPort(s)
		addr = ap.Addr()
	}
	return addr.Unmap().WithZone("")
}

// IP returns the key of an address, of IPv6 its first 64 bits; "" of the zero Addr.
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

// Credential returns the key of a credential, which is a hash of it; "" of none.
func Credential(v string) string {
	if v == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(v))
	return "key:" + hex.EncodeToString(sum[:16])
}

// Bearer returns the credential of an Authorization of that scheme; "" of any other.
func Bearer(authorization string) string {
	scheme, credential, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(credential)
}
