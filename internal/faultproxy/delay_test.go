package faultproxy

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// took is how long an exchange takes.
func took(t *testing.T, c net.Conn, line string) time.Duration {
	t.Helper()
	began := time.Now()
	if got, err := ask(c, line, long); got != line || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	return time.Since(began)
}

func TestDelays(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	works(t, c)
	const d = 40 * time.Millisecond
	for _, tt := range []struct {
		m    Mode
		want time.Duration
	}{
		{Mode{Delay: d}, d},
		{Mode{ReplyDelay: d}, d},
		{Mode{Delay: d, ReplyDelay: d}, 2 * d},
		{Mode{BytesPerSecond: 300}, 2 * 6 * time.Second / 300},
	} {
		p.Set(tt.m)
		least := long
		for range 5 { // the machine may be busy for one of them
			least = min(least, took(t, c, "hello"))
		}
		if least < tt.want || least > tt.want+d {
			t.Errorf("%+v took %v, want %v", tt.m, least, tt.want)
		}
	}
}

// A delay costs latency, not bandwidth: many replies wait at the same time, and
// come in order.
func TestDelayIsNotPerChunk(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	works(t, c)
	const d, n = 300 * time.Millisecond, 40
	p.Set(Mode{Delay: d, ReplyDelay: d})
	began := time.Now()
	var want bytes.Buffer
	for i := range n {
		line := strings.Repeat("x", i) + "\n"
		want.WriteString(line)
		// Each line by itself: those that are read together are one chunk.
		if _, err := io.WriteString(c, line); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	got := make([]byte, want.Len())
	_ = c.SetReadDeadline(time.Now().Add(long))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Fatalf("out of order, or %v", err)
	}
	if took := time.Since(began); took > n*d/2 {
		t.Errorf("%d lines took %v, with %v of delay for all", n, took, 2*d)
	}
}

// What waits for a former mode goes by the present one.
func TestSetHoldsForWhatWaits(t *testing.T) {
	p, lines := start(t)
	c := dial(t, p)
	works(t, c)
	for _, m := range []Mode{{Delay: time.Hour}, {ReplyDelay: time.Hour}, {BytesPerSecond: 1}} {
		p.Set(m)
		if _, err := io.WriteString(c, "held\n"); err != nil {
			t.Fatal(err)
		}
		timesOut(t, c)
		p.Pass()
		got := make([]byte, len("held\nhello\n"))
		_ = c.SetReadDeadline(time.Now().Add(long))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "held\nhello\n" {
			t.Errorf("after %+v: %q, %v", m, got, err)
		}
	}
	p.Set(Mode{Delay: time.Hour})
	before := lines.Load()
	timesOut(t, c)
	p.Set(Mode{BlackHole: true})
	swallowed(t, p, 6)
	p.Pass()
	if !broken(c) || lines.Load() != before {
		t.Error("a request that waited passed a black hole")
	}
}

// The speed holds for all connections together.
func TestThrottle(t *testing.T) {
	p, _ := start(t)
	a, b := dial(t, p), dial(t, p)
	works(t, a)
	works(t, b)
	const size, speed = 10_000, 100_000
	line := strings.Repeat("x", size-1) + "\n"
	p.Set(Mode{BytesPerSecond: speed})
	began := time.Now()
	for _, c := range []net.Conn{a, b} {
		if _, err := io.WriteString(c, line); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []net.Conn{a, b} {
		_ = c.SetReadDeadline(time.Now().Add(long))
		if _, err := io.ReadFull(c, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	if got := time.Since(began); got < 2*size*time.Second/speed {
		t.Errorf("%d bytes took %v at %d a second", 2*size, got, speed)
	}
}

// A slow reply trickles, and comes at once when the mode is over.
func TestThrottleTrickles(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	works(t, c)
	p.Set(Mode{ReplyDelay: time.Hour})
	line := strings.Repeat("x", 999) + "\n"
	if _, err := io.WriteString(c, line); err != nil {
		t.Fatal(err)
	}
	soon(t, "the request is there", func() bool { return p.Stats().ToServer == 1006 })
	p.Set(Mode{BytesPerSecond: 100})
	_ = c.SetReadDeadline(time.Now().Add(2 * long))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got := p.Stats().ToClient; got > 506 {
		t.Errorf("%d bytes came with the first", got-6)
	}
	p.Pass()
	if _, err := io.ReadFull(c, make([]byte, 999)); err != nil {
		t.Fatal(err)
	}
}

// A receiver that does not read slows its own connection down, and no change of
// the mode.
func TestReceiverThatDoesNotReadSlowsItself(t *testing.T) {
	p, _ := start(t)
	full := dial(t, p)
	go func() {
		line := []byte(strings.Repeat("x", 1<<16) + "\n")
		for {
			if _, err := full.Write(line); err != nil {
				return
			}
		}
	}()
	soon(t, "buffers are full", func() bool {
		before := p.Stats()
		time.Sleep(60 * time.Millisecond)
		return before.ToClient > 0 && p.Stats().ToClient == before.ToClient
	})
	began := time.Now()
	for range 5 {
		p.Set(Mode{HalfOpen: true})
		p.Pass()
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("ten changes took %v", took)
	}
	works(t, dial(t, p))
}
