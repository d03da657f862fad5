package middleware

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/inbound"
)

// ErrNoKey is for a request without a rate-limit key.
var ErrNoKey = inbound.ErrNoKey

// Key finds the rate-limit key of a request. The zero value is not usable.
type Key struct {
	key    inbound.Key[*http.Request]
	scheme string // of HTTP authentication; "" is none
}

// KeyFunc is a key of your own. An empty one is none, as is ErrNoKey; any other error
// is answered with 500.
func KeyFunc(of func(*http.Request) (string, error)) Key {
	if of == nil {
		return invalid("key", "nil", "must not be a nil function")
	}
	return Key{key: inbound.KeyFunc(func(_ context.Context, r *http.Request) (string, error) { return of(r) })}
}

// some makes a Key of a function that returns "" for none.
func some(of func(*http.Request) string) Key {
	return Key{key: inbound.Some(func(_ context.Context, r *http.Request) string { return of(r) })}
}

// invalid is a Key that New rejects.
func invalid(field string, value any, rule string) Key {
	return Key{key: inbound.Key[*http.Request]{Err: configerr.New(field, value, rule)}}
}

// Everyone is one key for all requests.
func Everyone() Key { return some(func(*http.Request) string { return "everyone" }) }

// Header is the first value of a header. Clients choose what it says: use it behind
// something that sets it.
func Header(name string) Key {
	if !isToken(name) {
		return invalid("header", name, "must be the name of an HTTP header")
	}
	name = http.CanonicalHeaderKey(name)
	return some(func(r *http.Request) string { return first(r, name) })
}

// APIKey is the credential in the first of the headers that the request has, by
// default X-API-Key and Authorization with the scheme Bearer. What limiters see is
// its hash, so that credentials don't end up in Redis. Nothing is verified: put it
// behind what does that, or a caller gets a fresh limit with each credential that it
// makes up.
func APIKey(headers ...string) Key {
	if len(headers) == 0 {
		headers = []string{"X-Api-Key", "Authorization"}
	}
	names := make([]string, len(headers))
	for i, name := range headers {
		if !isToken(name) {
			return invalid("header", name, "must be the name of an HTTP header")
		}
		names[i] = http.CanonicalHeaderKey(name)
	}
	key := Key{key: inbound.APIKey(names, "Authorization", func(_ context.Context, r *http.Request, name string) string { return first(r, name) })}
	if slices.Contains(names, "Authorization") {
		key.scheme = "Bearer"
	}
	return key
}

// BasicAuthUser is the user of HTTP Basic Authentication. The password is not
// verified.
func BasicAuthUser() Key {
	key := some(func(r *http.Request) string {
		user, _, _ := r.BasicAuth()
		return user
	})
	key.scheme = "Basic"
	return key
}

// PathValue is a wildcard of the pattern that the request matched: see
// http.Request.PathValue. The middleware has to be inside the ServeMux for that.
func PathValue(name string) Key {
	if name == "" {
		return invalid("path value", name, "must not be empty")
	}
	return some(func(r *http.Request) string { return r.PathValue(name) })
}

// RemoteIP is the address that the connection comes from. Of an IPv6 address the first 64
// bits count, because a subscriber has all addresses that begin with them. Behind a proxy it
// is the address of the proxy; see XForwardedFor. A
// connection without an IP address, as over a Unix socket, has no key.
func RemoteIP() Key {
	return some(func(r *http.Request) string {
		// An address of IPv4 can be written in one way only: it is its own key.
		if ap, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && ap.Addr().Is4() {
			return r.RemoteAddr[:strings.LastIndexByte(r.RemoteAddr, ':')]
		}
		return inbound.IP(remote(r))
	})
}

// Join is several keys at once: all of them must be there.
func Join(keys ...Key) Key {
	var joined Key
	var parts []inbound.Key[*http.Request]
	for _, k := range keys {
		parts = append(parts, k.key)
		joined.scheme = cmp.Or(joined.scheme, k.scheme)
	}
	joined.key = inbound.Join(parts)
	return joined
}

func first(r *http.Request, name string) string {
	if v := r.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// remote is the address of the connection; the zero Addr when it has none.
func remote(r *http.Request) netip.Addr { return inbound.Addr(r.RemoteAddr) }

// isToken reports whether s is a token of RFC 9110.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
	})
}
