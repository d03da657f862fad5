package admission

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/holdfast-go/holdfast/retry"
)

// TestFloodNeverForgetsAThrottle: hosts by the thousand do not make one that is
// down be forgotten, nor grow the table.
func TestFloodNeverForgetsAThrottle(t *testing.T) {
	hs, e := newHosts(10, &retry.ThrottleSettings{MinRequests: 1}, nil, slog.New(slog.DiscardHandler), nil)
	if e != nil {
		t.Fatal(e)
	}
	fails := func(name string) *Host {
		h := hs.get(name)
		if h.Throttle != nil {
			h.Throttle.Report(context.Background(), false)
		}
		return h
	}
	hot := fails("hot")
	for i := range 1000 {
		if h := hs.get(fmt.Sprint("ok", i)); h == hs.overflow || h.Throttle == nil {
			t.Fatalf("no room for a host beside those that work: %+v", h)
		}
	}
	if hs.get("hot") != hot {
		t.Fatal("a throttle was forgotten")
	}
	for i := range 1000 {
		fails(fmt.Sprint("down", i))
	}
	if hs.get("hot") != hot {
		t.Error("a throttle was forgotten when all were in use")
	}
	if n := hs.t.Len(); n > 10 {
		t.Errorf("%d hosts are remembered, want at most 10", n)
	}
	over := hs.get("one more")
	if over.Throttle != nil || over != hs.get("another") || over.Budget == nil {
		t.Errorf("beyond the table: %+v", over)
	}
}
