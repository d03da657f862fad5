package holdfastgrpc

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/inbound"
)

// ErrNoKey is for a call without a rate-limit key.
var ErrNoKey = inbound.ErrNoKey

// RPC is a call as a [Server] sees it before it is served.
type RPC struct {
	// Method is the full name, as in /package.Service/Method.
	Method string
	// Request is the message of a unary call; nil for a stream. It must not be
	// changed.
	Request any
	// Stream says that it is a streaming call, in either direction.
	Stream bool
}

// Key finds the rate-limit key of a call. The zero value is not usable. A Key is safe
// for concurrent use.
type Key struct{ key inbound.Key[RPC] }

// KeyFunc is a key of your own. An empty one is none, as is ErrNoKey. An error that is a
// gRPC status is returned to the caller as it is; any other is codes.Internal, without
// its text. of must be safe for concurrent use.
func KeyFunc(of func(context.Context, RPC) (string, error)) Key {
	if of == nil {
		return invalid(configerr.New("key", "nil", "must not be a nil function"))
	}
	return Key{inbound.KeyFunc(of)}
}

// some makes a Key of a function that returns "" for none.
func some(of func(context.Context, RPC) string) Key { return Key{inbound.Some(of)} }

// invalid is a Key that NewServer rejects.
func invalid(err error) Key { return Key{inbound.Key[RPC]{Err: err}} }

// Everyone is one key for all calls.
func Everyone() Key { return some(func(context.Context, RPC) string { return "everyone" }) }

// Method is the full name of the method: one limit for each, over all callers. Where
// grpc.UnknownServiceHandler serves any name, callers choose it.
func Method() Key { return some(func(_ context.Context, rpc RPC) string { return rpc.Method }) }

// Metadata is the value that the call's metadata has under a name, which may be a binary
// one, ending in -bin. A call with several values has no key: a proxy that appends one
// would leave the client's own in front of it. Clients choose what it says: use it behind
// something that sets it.
func Metadata(name string) Key {
	name, e := metadataName(name)
	if e != nil {
		return invalid(e)
	}
	return some(func(ctx context.Context, _ RPC) string { return only(ctx, name) })
}

// APIKey is the credential in the first of the names that the call's metadata has, by
// default x-api-key and authorization with the scheme Bearer. What limiters see is
// its hash, so that credentials don't end up in Redis. A name with several values counts
// as missing. Nothing is verified: put it behind what does that, or a caller gets a fresh
// limit with each credential that it makes up.
func APIKey(names ...string) Key {
	if len(names) == 0 {
		names = []string{"x-api-key", "authorization"}
	}
	lower := make([]string, len(names))
	for i, name := range names {
		var err error
		if lower[i], err = metadataName(name); err != nil {
			return invalid(err)
		}
	}
	return Key{inbound.APIKey(lower, "authorization", func(ctx context.Context, _ RPC, name string) string { return only(ctx, name) })}
}

// PeerIP is the address that the connection comes from, of IPv6 the first 64 bits: that
// is what a subscriber has. Behind a proxy or a load balancer that ends connections it is the
// proxy's address, which all callers share: use what the proxy sets, by [Metadata] or
// [KeyFunc]. A connection without an IP address, such as a Unix socket, has no key.
func PeerIP() Key {
	return some(func(ctx context.Context, _ RPC) string {
		p, ok := peer.FromContext(ctx)
		if !ok || p.Addr == nil {
			return ""
		}
		return inbound.IP(addrOf(p.Addr))
	})
}

// Join is several keys at once, such as caller and method: all of them must be there.
func Join(keys ...Key) Key {
	var parts []inbound.Key[RPC]
	for _, k := range keys {
		parts = append(parts, k.key)
	}
	return Key{inbound.Join(parts)}
}

// only returns the value of a name, "" unless there is exactly one.
func only(ctx context.Context, name string) string {
	if v := metadata.ValueFromIncomingContext(ctx, name); len(v) == 1 {
		return v[0]
	}
	return ""
}

// metadataName checks a name as grpc-go does, and returns it in lower case.
func metadataName(name string) (string, error) {
	name = strings.ToLower(name)
	bad := strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_.", r) })
	return name, cmp.Or(configerr.Unless(!bad, "metadata", name, "must be made of letters, digits, -, _ and ."),
		configerr.Unless(name != "", "metadata", name, "must not be empty"))
}

// addrOf returns the zero Addr when there is no IP address.
func addrOf(a net.Addr) netip.Addr {
	if has, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		return has.AddrPort().Addr()
	}
	return inbound.Addr(a.String())
}
