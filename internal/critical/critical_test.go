package critical

import (
	"context"
	"testing"
)

// TestMarked: a call is critical whose context was marked, and those made from it, and no other.
func TestMarked(t *testing.T) {
	plain := context.Background()
	marked := Mark(plain)
	below, stop := context.WithCancel(marked)
	defer stop()
	if Is(plain) || !Is(marked) || !Is(below) {
		t.Errorf("%v, %v, %v", Is(plain), Is(marked), Is(below))
	}
}
