package holdfastgrpc

import (
	"context"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-go/holdfast/internal/inbound"
)

// FuzzPushback: whatever the trailer says, there is a wait of 32 bits of milliseconds, or
// no retry; what a Server says is read as it was meant; of two waits the longer one counts.
func FuzzPushback(f *testing.F) {
	for _, s := range []string{"", "0", "1", "-1", "+1", "007", "2147483647", "2147483648", "-2147483649", "1e3", "1.5", " 1", "१", "99999999999999999999"} {
		f.Add(s, int64(len(s)))
	}
	f.Fuzz(func(t *testing.T, s string, ns int64) {
		d, never, ok := parsePushback([]string{s})
		if !ok || d < 0 || d > (1<<31-1)*time.Millisecond || never && d != 0 || d%time.Millisecond != 0 {
			t.Errorf("%q: %v, %v, %v", s, d, never, ok)
		}
		if digits := s != "" && strings.Trim(s, "0123456789") == ""; never != !digits && !strings.HasPrefix(s, "+") && !strings.HasPrefix(s, "-") && len(s) < 10 {
			t.Errorf("%q: never %v", s, never)
		}
		if _, never, ok = parsePushback([]string{s, s}); !never || !ok {
			t.Errorf("twice %q: %v, %v", s, never, ok)
		}
		wait := time.Duration(max(1, ns))
		if d, never, _ = parsePushback([]string{pushback(wait)}); !never && (d < wait || d >= wait+time.Millisecond) || never && wait < 1<<31*time.Millisecond-time.Millisecond {
			t.Errorf("%v was sent as %s and read as %v, %v", wait, pushback(wait), d, never)
		}
		st, err := status.New(codes.Unavailable, "").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
		if err != nil {
			t.Fatal(err)
		}
		if h := hintOf(st, metadata.MD{pushbackKey: {s}}); !h.asked || h.wait < wait || !h.never && h.wait != max(wait, pushedBack(s)) {
			t.Errorf("%q beside a RetryInfo of %v: %+v", s, wait, h)
		}
	})
}

// pushedBack is the wait of a pushback; 0 is none.
func pushedBack(s string) time.Duration {
	d, _, _ := parsePushback([]string{s})
	return d
}

// FuzzRetryInfo: whatever bytes a detail has, there is no panic and no negative wait; one
// that says a time is that time, or the longest.
func FuzzRetryInfo(f *testing.F) {
	const url = "type.googleapis.com/google.rpc.RetryInfo"
	for _, delay := range []*durationpb.Duration{nil, {}, {Seconds: 5}, {Nanos: 1}, {Nanos: 1e9}, {Seconds: -1}, {Seconds: 1, Nanos: -1}, {Seconds: 9223372036, Nanos: 854775807}, {Seconds: 9223372036, Nanos: 854775808}, {Seconds: math.MaxInt64}} {
		b, _ := proto.Marshal(&errdetails.RetryInfo{RetryDelay: delay})
		f.Add(b, url)
	}
	f.Add([]byte{0x0a, 0x02, 0x08, 0x05}, url)
	f.Add([]byte{0x0a, 0xff}, "google.rpc.RetryInfo")
	f.Add([]byte{}, "\xff/")
	f.Fuzz(func(t *testing.T, value []byte, url string) {
		detail := &anypb.Any{TypeUrl: url, Value: value}
		st := status.FromProto(&spb.Status{Code: 8, Details: []*anypb.Any{detail, nil, detail}})
		h := hintOf(st, metadata.MD{pushbackKey: {string(value)}})
		if h.wait < 0 || h.wait > 0 && !h.asked {
			t.Errorf("%+v", h)
		}
		var info errdetails.RetryInfo
		if detail.UnmarshalTo(&info) != nil || info.RetryDelay == nil {
			return
		}
		secs, nanos := info.RetryDelay.Seconds, info.RetryDelay.Nanos
		want := new(big.Int).Add(new(big.Int).Mul(big.NewInt(secs), big.NewInt(1e9)), big.NewInt(int64(nanos)))
		if !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		valid := secs >= 0 && nanos >= 0 && nanos < 1e9
		if d, ok := retryInfo(st); ok != valid || ok && int64(d) != want.Int64() {
			t.Errorf("%d s and %d ns: %v, %v", secs, nanos, d, ok)
		}
	})
}

// FuzzMetadataKey: whatever metadata says, a key is short, and another one is another's.
func FuzzMetadataKey(f *testing.F) {
	for _, s := range []string{"", "a", "\x00", "sha256:", "sha256:" + strings.Repeat("0", 64), strings.Repeat("x", 300)} {
		f.Add(s, "b")
	}
	key, credential := Metadata("user-bin"), APIKey("user-bin", "authorization")
	pair := Join(Metadata("a-bin"), Metadata("b-bin"))
	of := func(k Key, pairs ...string) (string, error) {
		got, err := k.key.Of(metadata.NewIncomingContext(context.Background(), metadata.Pairs(pairs...)), RPC{})
		return inbound.Short(got), err
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		keyA, errA := of(key, "user-bin", a)
		keyB, errB := of(key, "user-bin", b)
		if (errA != nil) != (a == "" || a == inbound.Shared) || errA == nil && (keyA == "" || keyA == inbound.Shared || len(keyA) > 128) {
			t.Errorf("%q: key %q, %v", a, keyA, errA)
		}
		if errA == nil && errB == nil && (keyA == keyB) != (a == b) {
			t.Errorf("%q and %q have the keys %q and %q", a, b, keyA, keyB)
		}
		if c, err := of(credential, "user-bin", a, "authorization", b); err == nil && (!strings.HasPrefix(c, "key:") || len(c) != 36) {
			t.Errorf("%q: credential %q", a, c)
		}
		ab, errAB := of(pair, "a-bin", a, "b-bin", b)
		ba, errBA := of(pair, "a-bin", b, "b-bin", a)
		if errAB == nil && errBA == nil && (ab == ba) != (a == b) {
			t.Errorf("%q, %q and their reverse have the keys %q and %q", a, b, ab, ba)
		}
	})
}

// FuzzTrailer: whatever a proxy writes into its headers, no wait is below 0, a server that
// forbids a retry is obeyed, and a wait that is named has a source.
func FuzzTrailer(f *testing.F) {
	for _, s := range []string{"", "7", "-1", "2.5", "99999999999999999999", "soon", `"a";r=0;t=7`, "Sat, 01 Jan 2000 00:00:03 GMT"} {
		for _, name := range []string{"retry-after", "retry-after-ms", "ratelimit", "x-ratelimit-reset", "rate-limit-reset"} {
			f.Add(name, s, s, "0")
		}
	}
	f.Fuzz(func(t *testing.T, name, value, pushed, left string) {
		md := metadata.MD{name: {value}, pushbackKey: {pushed}, "x-ratelimit-remaining": {left}, "date": {value}}
		for _, code := range []codes.Code{codes.Unavailable, codes.ResourceExhausted} {
			h := hintOf(status.New(code, ""), md)
			_, never, _ := parsePushback(md[pushbackKey])
			if h.wait < 0 || h.asked != (h.source != "") || h.wait > 0 && !h.asked || h.never != never || never && h.asked {
				t.Errorf("%v: %+v", md, h)
			}
			if h.asked && h.wait < pushedBack(pushed) {
				t.Errorf("%v: %+v is less than what gRPC says", md, h)
			}
		}
	})
}
