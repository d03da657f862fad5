package redislink

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
)

// TestWithdrawnIsNotSent: a call is either written or withdrawn, never both. For the client a call that was withdrawn before anything of it
// was written is an error of Redis, after which it keeps the connection.
func TestWithdrawnIsNotSent(t *testing.T) {
	f := newFlight(nil)
	first, second := &nonce{[]byte("a"), true, f}, &nonce{[]byte("b"), false, f}
	if !f.withdraw() {
		t.Error("a call that was not written cannot be withdrawn")
	}
	for _, n := range []*nonce{first, second} {
		if err := n.Open(); !errors.Is(err, errWithdrawn) || isA[redis.Error](err) != n.first || classify(t.Context(), err, 0, 0) != breaker.ClassUnavailable {
			t.Errorf("%s is written of a call that was withdrawn: %v", n.text, err)
		}
	}
	f.written.Store(unwritten)
	for _, n := range []*nonce{first, second} {
		if err := n.Open(); err != nil {
			t.Errorf("%s: %v", n.text, err)
		}
		if f.withdraw() {
			t.Error("a call that was written is withdrawn")
		}
		if got, err := n.MarshalBinary(); err != nil || string(got) != string(n.text) {
			t.Errorf("%s, %v", got, err)
		}
	}
}
