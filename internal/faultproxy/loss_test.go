package faultproxy

import (
	"io"
	"net"
	"testing"
	"time"
)

func TestBlackHole(t *testing.T) {
	p, lines := start(t)
	old, idle := dial(t, p), dial(t, p)
	works(t, old)
	works(t, idle)
	p.Set(Mode{BlackHole: true})
	fresh := dial(t, p)
	timesOut(t, old)
	timesOut(t, fresh)
	swallowed(t, p, 12)
	gone := dial(t, p)
	if _, err := io.WriteString(gone, "late\n"); err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	soon(t, "a client that left is forgotten", func() bool { return p.Stats().Open == 3 && p.Stats().Swallowed == 17 })
	p.Pass()
	if !broken(old) || !broken(fresh) {
		t.Error("a connection that has lost bytes goes on")
	}
	works(t, idle)
	works(t, dial(t, p))
	if lines.Load() != 4 {
		t.Errorf("the server read %d lines, want none of the black hole", lines.Load())
	}
}

func TestHalfOpen(t *testing.T) {
	p, lines := start(t)
	c, idle := dial(t, p), dial(t, p)
	works(t, idle)
	p.Set(Mode{HalfOpen: true})
	timesOut(t, c)
	swallowed(t, p, 6)
	if lines.Load() != 2 {
		t.Errorf("the server read %d lines, want the one whose reply was swallowed too", lines.Load())
	}
	if s := p.Stats(); s.ToServer != 12 || s.ToClient != 6 {
		t.Errorf("%+v", s)
	}
	// Were it to go on, the next reply would be taken for the one that is lost.
	p.Pass()
	if !broken(c) {
		t.Error("a connection whose reply was lost goes on")
	}
	works(t, idle)
}

// From one mode that loses replies to another one, nothing is heard either.
func TestLossGoesOn(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	works(t, c)
	p.Set(Mode{HalfOpen: true})
	timesOut(t, c)
	swallowed(t, p, 6)
	p.Set(Mode{BlackHole: true})
	timesOut(t, c)
	swallowed(t, p, 12)
	p.Set(Mode{HalfOpen: true}) // requests would pass again, but one was lost
	if !broken(c) {
		t.Error("a connection whose request was lost goes on")
	}
}

func TestReset(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	works(t, c)
	p.Reset()
	if !broken(c) {
		t.Error("no RST")
	}
	works(t, dial(t, p))
}

func TestRefuse(t *testing.T) {
	p, _ := start(t)
	old := dial(t, p)
	works(t, old)
	p.Set(Mode{Refuse: true})
	// The RST can come before the dialler has had a look.
	if c, err := net.Dial("tcp", p.Addr()); err == nil && !broken(c) {
		t.Error("a refused connection stays open")
	}
	works(t, old)
	p.Pass()
	works(t, dial(t, p))
	if s := p.Stats(); s.Accepted != 3 || s.Open != 2 {
		t.Errorf("%+v", s)
	}
}

func TestCut(t *testing.T) {
	p, _ := start(t)
	old := dial(t, p)
	works(t, old)
	p.Set(Mode{CutAfter: 9})
	for name, c := range map[string]net.Conn{"open before": old, "opened after": dial(t, p)} {
		works(t, c) // 6 bytes
		if _, err := io.WriteString(c, "second\n"); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(long))
		if got, err := io.ReadAll(c); string(got) != "sec" || err != nil {
			t.Errorf("%s: %q, %v, want 3 bytes and an orderly end", name, got, err)
		}
	}
	p.Pass()
	works(t, dial(t, p))
}
