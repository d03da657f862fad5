package holdfastgrpc_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	holdfastgrpc "github.com/holdfast-go/holdfast/grpc"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/semaphore"
)

const (
	okay    = codes.OK
	busy    = codes.ResourceExhausted
	invalid = codes.InvalidArgument
)

// one in 300 hours: no test crosses its window's end but one in a million.
var one = limiter.FixedWindow(limiter.Per(1, 300*time.Hour))

// TestOptions: what each of them changes, for calls and for streams.
func TestOptions(t *testing.T) {
	user := func(name string, more ...string) []string { return append([]string{"x-user", name}, more...) }
	from := func(ctx context.Context, name string) string {
		if v := metadata.ValueFromIncomingContext(ctx, name); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	server := func(allower limiter.Allower, key holdfastgrpc.Key, opts ...holdfastgrpc.ServerOption) testgrpc.TestServiceClient {
		return dial(t, serve(t, &backend{}, limited(t, allower, key, opts...)...))
	}
	byUser := holdfastgrpc.Metadata("X-User")

	c := server(local(t, one), byUser, holdfastgrpc.WithSkip(func(ctx context.Context, rpc holdfastgrpc.RPC) bool {
		return rpc.Method == "/grpc.testing.TestService/UnaryCall" && from(ctx, "health") != ""
	}))
	wantCodes(t, "skipped", c, []string{"health", "1"}, okay, okay, okay)
	wantCodes(t, "not skipped", c, user("a"), okay, busy)
	wantCodes(t, "another key", c, user("b"), okay, busy)
	wantCodes(t, "no key", c, nil, invalid, invalid)
	wantCodes(t, "two keys", c, append(user("a"), user("z")...), invalid)
	huge := strings.Repeat("x", 1<<20)
	wantCodes(t, "a huge key", c, user(huge+"1"), okay, busy)
	wantCodes(t, "another one", c, user(huge+"2"), okay, busy)
	if err := drain(t.Context(), c, "x-user", "c"); err != nil {
		t.Error(err)
	}
	if err := drain(t.Context(), c, "x-user", "c"); status.Code(err) != busy {
		t.Errorf("a second stream: %v", err)
	}

	wantCodes(t, "no key", server(local(t, one), byUser, holdfastgrpc.WithMissingKey(holdfastgrpc.MissingUnauthenticated)), nil, codes.Unauthenticated)
	c = server(local(t, one), byUser, holdfastgrpc.WithMissingKey(holdfastgrpc.MissingShared))
	wantCodes(t, "no key, shared", c, nil, okay, busy)
	wantCodes(t, "a key beside the shared one", c, user("a"), okay)
	c = server(local(t, one), holdfastgrpc.Metadata("user-bin"), holdfastgrpc.WithMissingKey(holdfastgrpc.MissingShared))
	wantCodes(t, "who says that it is the shared one", c, []string{"user-bin", "\x00"}, okay)
	wantCodes(t, "who says it too", c, nil, busy)

	c = server(local(t, limiter.FixedWindow(limiter.Per(10, 300*time.Hour))), holdfastgrpc.Everyone(), holdfastgrpc.WithCost(func(ctx context.Context, rpc holdfastgrpc.RPC) int {
		if _, ok := rpc.Request.(*testgrpc.SimpleRequest); !ok {
			t.Errorf("the request is a %T", rpc.Request)
		}
		n, _ := strconv.Atoi(from(ctx, "cost"))
		return n
	}))
	wantCodes(t, "6 and 6", c, []string{"cost", "6"}, okay, busy)
	wantCodes(t, "4", c, []string{"cost", "4"}, okay)
	wantCodes(t, "negative", c, []string{"cost", "-1"}, invalid)
	wantCodes(t, "above the limit", c, []string{"cost", "11"}, invalid)
	wantCodes(t, "beyond all", c, []string{"cost", strconv.Itoa(math.MaxInt)}, invalid)
	wantCodes(t, "none", c, []string{"cost", "0"}, okay)
	blocked := local(t, one)
	if err := blocked.Block(t.Context(), "everyone", time.Hour); err != nil {
		t.Fatal(err)
	}
	c = server(blocked, holdfastgrpc.Everyone(), holdfastgrpc.WithCost(func(context.Context, holdfastgrpc.RPC) int { return 0 }), holdfastgrpc.WithHook(func(_ context.Context, d holdfastgrpc.Decision) {
		if d.Policy != "" || d.Code != okay || d.Shadow {
			t.Errorf("served, and told %+v", d)
		}
	}))
	wantCodes(t, "a cost of none of who is blocked", c, nil, okay)

	tiers := map[string]limiter.Limit{"pro": limiter.FixedWindow(limiter.Per(3, 300*time.Hour))}
	c = server(local(t, one), byUser, holdfastgrpc.WithTier(func(ctx context.Context, _ holdfastgrpc.RPC) limiter.Limit {
		return tiers[from(ctx, "plan")]
	}))
	wantCodes(t, "pro", c, user("p", "plan", "pro"), okay, okay, okay, busy)
	wantCodes(t, "an unknown tier", c, user("u", "plan", "gold"), okay, busy)
	wantCodes(t, "no tier", c, user("n"), okay, busy)
}

// TestShadow: all is served, and the hook sees what would have been refused.
func TestShadow(t *testing.T) {
	var seen []holdfastgrpc.Decision
	hook := func(_ context.Context, d holdfastgrpc.Decision) { seen = append(seen, d) }
	c := dial(t, serve(t, &backend{}, limited(t, local(t, one), holdfastgrpc.Metadata("x-user"), holdfastgrpc.WithShadow(), holdfastgrpc.WithHook(hook))...))
	wantCodes(t, "in the shadow", c, []string{"x-user", "a"}, okay, okay)
	wantCodes(t, "without a key", c, nil, okay)
	if err := drain(t.Context(), c, "x-user", "a"); err != nil {
		t.Error(err)
	}
	if len(seen) != 4 {
		t.Fatalf("the hook was called %d times", len(seen))
	}
	for i, want := range []struct {
		code   codes.Code
		policy string
		stream bool
	}{{okay, "", false}, {busy, "default", false}, {invalid, "", false}, {busy, "default", true}} {
		d := seen[i]
		if d.Code != want.code || d.Shadow != (want.code != okay) || d.Policy != want.policy || d.RPC.Stream != want.stream || (d.RPC.Request == nil) != want.stream {
			t.Errorf("call %d: %+v", i, d)
		}
	}
}

// TestMulti: the part that denied is named.
func TestMulti(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	var parts []limiter.Part
	for name, n := range map[string]int{"per user": 2, "for all": 5} {
		lim, err := limiter.New(rdb, limiter.FixedWindow(limiter.Per(n, 300*time.Hour)), limiter.WithPrefix("p"+strconv.Itoa(n)), limiter.WithShare(1), limiter.WithLogger(discard))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lim.Close() })
		p := limiter.Part{Name: name, Limiter: lim}
		if name == "for all" {
			p.Key = func(string) string { return "all" }
		}
		parts = append(parts, p)
	}
	both, err := limiter.NewMulti(parts...)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, serve(t, &backend{}, limited(t, both, holdfastgrpc.Metadata("x-user"))...))
	for i, want := range []struct{ user, denied string }{{"a", ""}, {"a", ""}, {"a", "per user"}, {"b", ""}, {"b", ""}, {"c", ""}, {"d", "for all"}} {
		err := call(t.Context(), c, "x-user", want.user)
		if (err == nil) != (want.denied == "") || subject(err) != want.denied {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// TestBadServerConfiguration: what is refused, by name.
func TestBadServerConfiguration(t *testing.T) {
	lim, everyone := local(t, one), holdfastgrpc.Everyone()
	tier := holdfastgrpc.WithTier(func(context.Context, holdfastgrpc.RPC) limiter.Limit { return limiter.Limit{} })
	for want, make := range map[string]func() (*holdfastgrpc.Server, error){
		"allower is nil": func() (*holdfastgrpc.Server, error) { return holdfastgrpc.NewServer(nil, everyone) },
		"allower is": func() (*holdfastgrpc.Server, error) {
			return holdfastgrpc.NewServer((*limiter.Limiter)(nil), everyone)
		},
		"semaphore is nil: must not be a nil pointer": func() (*holdfastgrpc.Server, error) {
			return holdfastgrpc.NewServer(lim, everyone, holdfastgrpc.WithConcurrency((*semaphore.Semaphore)(nil), "at once"))
		},
		"key is the zero": func() (*holdfastgrpc.Server, error) { return holdfastgrpc.NewServer(lim, holdfastgrpc.Key{}) },
		"key is nil":      func() (*holdfastgrpc.Server, error) { return holdfastgrpc.NewServer(lim, holdfastgrpc.KeyFunc(nil)) },
		"metadata is a b": func() (*holdfastgrpc.Server, error) {
			return holdfastgrpc.NewServer(lim, holdfastgrpc.Metadata("a b"))
		},
		"metadata is :path": func() (*holdfastgrpc.Server, error) {
			return holdfastgrpc.NewServer(lim, holdfastgrpc.APIKey("x", ":path"))
		},
		"metadata is \"\": must not be empty": func() (*holdfastgrpc.Server, error) {
			return holdfastgrpc.NewServer(lim, holdfastgrpc.Metadata(""))
		},
		"keys is 0": func() (*holdfastgrpc.Server, error) { return holdfastgrpc.NewServer(lim, holdfastgrpc.Join()) },
		"key is the": func() (*holdfastgrpc.Server, error) {
			return holdfastgrpc.NewServer(lim, holdfastgrpc.Join(everyone, holdfastgrpc.Key{}))
		},
		"policy is é": func() (*holdfastgrpc.Server, error) {
			return holdfastgrpc.NewServer(lim, everyone, holdfastgrpc.WithPolicy("é"))
		},
		"policy is \"\": ": func() (*holdfastgrpc.Server, error) {
			return holdfastgrpc.NewServer(lim, everyone, holdfastgrpc.WithConcurrency(nil, ""))
		},
		"missing key": func() (*holdfastgrpc.Server, error) {
			return holdfastgrpc.NewServer(lim, everyone, holdfastgrpc.WithMissingKey(9))
		},
		"option is nil": func() (*holdfastgrpc.Server, error) { return holdfastgrpc.NewServer(lim, everyone, nil) },
		"tier is": func() (*holdfastgrpc.Server, error) {
			return holdfastgrpc.NewServer(allower(nil), everyone, tier)
		},
	} {
		if _, err := make(); !errors.Is(err, limiter.ErrInvalidConfig) || !strings.HasPrefix(err.Error(), "holdfastgrpc: "+want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
