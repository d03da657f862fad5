package holdfastgrpc_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

// admits is a limiter that admits all.
var admits = allower(func(string, int) (limiter.Result, error) { return limiter.Result{Allowed: true}, nil })

// keyOf is the key that limiters are told, and the code of a call without one.
func keyOf(t testing.TB, key holdfastgrpc.Key, ctx context.Context, method string) (string, codes.Code) {
	t.Helper()
	var d holdfastgrpc.Decision
	s, err := holdfastgrpc.NewServer(admits, key, holdfastgrpc.WithHook(func(_ context.Context, seen holdfastgrpc.Decision) { d = seen }))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
	return d.Key, d.Code
}

func incoming(pairs ...string) context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs(pairs...))
}

func from(addr net.Addr) context.Context {
	return peer.NewContext(context.Background(), &peer.Peer{Addr: addr})
}

// named is an address as some listeners have it: a text.
type named string

func (named) Network() string  { return "named" }
func (n named) String() string { return string(n) }

func tcp(addr string) net.Addr { a, _ := net.ResolveTCPAddr("tcp", addr); return a }

func TestKeys(t *testing.T) {
	none := context.Background()
	long := strings.Repeat("x", 1<<20)
	both := holdfastgrpc.Join(holdfastgrpc.Metadata("a"), holdfastgrpc.Metadata("b"))
	for _, c := range []struct {
		what string
		key  holdfastgrpc.Key
		ctx  context.Context
		want string // "" is none
	}{
		{"everyone", holdfastgrpc.Everyone(), none, "everyone"},
		{"method", holdfastgrpc.Method(), none, "/a.B/C"},
		{"metadata", holdfastgrpc.Metadata("X-User"), incoming("x-user", "7"), "7"},
		{"no metadata at all", holdfastgrpc.Metadata("x-user"), none, ""},
		{"no such metadata", holdfastgrpc.Metadata("x-user"), incoming("x-user2", "7"), ""},
		{"empty", holdfastgrpc.Metadata("x-user"), incoming("x-user", ""), ""},
		{"two, of which one is invented", holdfastgrpc.Metadata("x-user"), incoming("x-user", "victim", "x-user", "7"), ""},
		{"binary", holdfastgrpc.Metadata("user-bin"), incoming("user-bin", "\xff\x00\xfe"), "\xff\x00\xfe"},
		{"the key of those who have none", holdfastgrpc.Metadata("user-bin"), incoming("user-bin", "\x00"), ""},
		{"128 bytes", holdfastgrpc.Metadata("u"), incoming("u", long[:128]), long[:128]},
		{"api key", holdfastgrpc.APIKey(), incoming("x-api-key", "abc"), "key:ba7816bf8f01cfea414140de5dae2223"},
		{"bearer", holdfastgrpc.APIKey(), incoming("authorization", "bearer  abc "), "key:ba7816bf8f01cfea414140de5dae2223"},
		{"another scheme", holdfastgrpc.APIKey(), incoming("authorization", "Basic abc"), ""},
		{"no credential", holdfastgrpc.APIKey(), incoming("authorization", "Bearer "), ""},
		{"two credentials", holdfastgrpc.APIKey(), incoming("x-api-key", "abc", "x-api-key", "def"), ""},
		{"own name", holdfastgrpc.APIKey("Token"), incoming("token", "abc", "x-api-key", "def"), "key:ba7816bf8f01cfea414140de5dae2223"},
		{"IPv4", holdfastgrpc.PeerIP(), from(tcp("192.0.2.1:50")), "192.0.2.1"},
		{"IPv4 in 6", holdfastgrpc.PeerIP(), from(named("[::ffff:192.0.2.1]:50")), "192.0.2.1"},
		{"IPv6", holdfastgrpc.PeerIP(), from(tcp("[2001:db8:1:2:3:4:5:6]:50")), "2001:db8:1:2::/64"},
		{"IPv6 of the same subscriber", holdfastgrpc.PeerIP(), from(tcp("[2001:db8:1:2::9]:50")), "2001:db8:1:2::/64"},
		{"IPv6 with a zone", holdfastgrpc.PeerIP(), from(named("[fe80::1%eth0]:50")), "fe80::/64"},
		{"without a port", holdfastgrpc.PeerIP(), from(named("192.0.2.1")), "192.0.2.1"},
		{"a Unix socket", holdfastgrpc.PeerIP(), from(&net.UnixAddr{Name: "/tmp/socket"}), ""},
		{"a TCP address of nothing", holdfastgrpc.PeerIP(), from(&net.TCPAddr{}), ""},
		{"no address", holdfastgrpc.PeerIP(), from(nil), ""},
		{"no peer", holdfastgrpc.PeerIP(), none, ""},
		{"joined", both, incoming("a", "1", "b", "23"), "1:12:23"},
		{"a part is missing", both, incoming("a", "1"), ""},
	} {
		got, code := keyOf(t, c.key, c.ctx, "/a.B/C")
		if got != c.want || (code == codes.OK) != (c.want != "") || code != codes.OK && code != codes.InvalidArgument {
			t.Errorf("%s: %q, %v, want %q", c.what, got, code, c.want)
		}
	}

	// Long keys cost no memory, and nobody can name the hash of another.
	hash, _ := keyOf(t, holdfastgrpc.Metadata("u"), incoming("u", long), "")
	if len(hash) != len("sha256:")+64 {
		t.Errorf("a key of 1 MiB is %d bytes", len(hash))
	}
	if other, _ := keyOf(t, holdfastgrpc.Metadata("u"), incoming("u", hash), ""); other == hash || len(other) != len(hash) {
		t.Errorf("the hash of a key, as a key, is %q", other)
	}
	joined, _ := keyOf(t, both, incoming("a", long, "b", long), "")
	if len(joined) > 200 {
		t.Errorf("two long keys are %d bytes", len(joined))
	}
	one, _ := keyOf(t, both, incoming("a", "1", "b", "1:1"), "")
	if other, _ := keyOf(t, both, incoming("a", "1:1", "b", "1"), ""); one == other {
		t.Errorf("two lists are the same key %q", one)
	}
}

// TestKeysOfMiddleware: a caller has the same key by gRPC as by HTTP, so that a limiter
// of both counts as one.
func TestKeysOfMiddleware(t *testing.T) {
	inHTTP := func(key middleware.Key, change func(*http.Request)) (seen string) {
		mw, err := middleware.New(admits, key, middleware.WithHook(func(_ context.Context, d middleware.Decision) { seen = d.Key }))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		change(r)
		mw(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
		return seen
	}
	for _, addr := range []string{"192.0.2.1:1", "[::ffff:192.0.2.1]:2", "[2001:db8::1]:3", "[fe80::1%eth0]:4", "[::1]:5", "0.0.0.0:6"} {
		want := inHTTP(middleware.RemoteIP(), func(r *http.Request) { r.RemoteAddr = addr })
		if got, _ := keyOf(t, holdfastgrpc.PeerIP(), from(named(addr)), ""); got != want {
			t.Errorf("%s: %q, by HTTP %q", addr, got, want)
		}
	}
	for _, v := range []string{"a", strings.Repeat("a", 128), strings.Repeat("a", 129)} {
		want := inHTTP(middleware.APIKey(), func(r *http.Request) { r.Header.Set("X-Api-Key", v) })
		if got, _ := keyOf(t, holdfastgrpc.APIKey(), incoming("x-api-key", v), ""); got != want {
			t.Errorf("API key %q: %q, by HTTP %q", v, got, want)
		}
		want = inHTTP(middleware.Join(middleware.Header("U"), middleware.Everyone()), func(r *http.Request) { r.Header.Set("U", v) })
		if got, _ := keyOf(t, holdfastgrpc.Join(holdfastgrpc.Metadata("u"), holdfastgrpc.Everyone()), incoming("u", v), ""); got != want {
			t.Errorf("joined %q: %q, by HTTP %q", v, got, want)
		}
	}
}
