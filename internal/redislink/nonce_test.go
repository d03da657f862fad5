package redislink

import "testing"

// TestWithdrawnIsNotSent: a call is either written or withdrawn, never both.
func TestWithdrawnIsNotSent(t *testing.T) {
	s := new(sending)
	first, second := &nonce{[]byte("a"), s}, &nonce{[]byte("b"), s}
	if !s.withdraw() {
		t.Error("a call that was not written cannot be withdrawn")
	}
	for _, n := range []*nonce{first, second} {
		if got, err := n.MarshalBinary(); err != errWithdrawn {
			t.Errorf("%q, %v is written of a call that was withdrawn", got, err)
		}
	}
	s.state.Store(unsent)
	for _, n := range []*nonce{first, second} {
		if got, err := n.MarshalBinary(); err != nil || string(got) != string(n.text) {
			t.Errorf("%q, %v", got, err)
		}
		if s.withdraw() {
			t.Error("a call that was written is withdrawn")
		}
	}
}
