package redislink

import "testing"

// TestWithdrawnIsNotSent: a call is either written or withdrawn, never both.
func TestWithdrawnIsNotSent(t *testing.T) {
	s := new(sending)
	first, second := &ticket{[]byte("a"), s}, &ticket{[]byte("b"), s}
	if !s.withdraw() {
		t.Error("a call that was not written cannot be withdrawn")
	}
	for _, ticket := range []*ticket{first, second} {
		if got, err := ticket.MarshalBinary(); err != errWithdrawn {
			t.Errorf("%q, %v is written of a call that was withdrawn", got, err)
		}
	}
	s.state.Store(unsent)
	for _, ticket := range []*ticket{first, second} {
		if got, err := ticket.MarshalBinary(); err != nil || string(got) != string(ticket.nonce) {
			t.Errorf("%q, %v", got, err)
		}
		if s.withdraw() {
			t.Error("a call that was written is withdrawn")
		}
	}
}
