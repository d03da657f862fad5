package faultproxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each line with itself, and counts those it has read.
func echo(t *testing.T) (addr string, lines *atomic.Int64) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					lines.Add(1)
					if _, err := io.WriteString(c, line); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String(), lines
}

func start(t *testing.T) (*Proxy, *atomic.Int64) {
	t.Helper()
	addr, lines := echo(t)
	p, err := New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, lines
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends a line and waits for it to come back.
func ask(c net.Conn, line string, wait time.Duration) (string, error) {
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return "", err
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	reply, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(reply), err
}

const long = 5 * time.Second

func works(t *testing.T, c net.Conn) {
	t.Helper()
	if got, err := ask(c, "hello", long); got != "hello" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
}

func timesOut(t *testing.T, c net.Conn) {
	t.Helper()
	got, err := ask(c, "hello", 50*time.Millisecond)
	if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
		t.Fatalf("%q, %v, want no answer", got, err)
	}
}

func TestDelays(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	works(t, c)
	for _, m := range []Mode{{Delay: 30 * time.Millisecond}, {ReplyDelay: 30 * time.Millisecond}, {BytesPerSecond: 200}} {
		p.Set(m)
		began := time.Now()
		works(t, c)
		if took := time.Since(began); took < 30*time.Millisecond {
			t.Errorf("%+v took %v", m, took)
		}
	}
	p.Pass()
	works(t, c)
}

func TestBlackHole(t *testing.T) {
	p, lines := start(t)
	old := dial(t, p)
	works(t, old)
	p.Set(Mode{BlackHole: true})
	fresh := dial(t, p)
	timesOut(t, old)
	timesOut(t, fresh)
	if lines.Load() != 1 {
		t.Errorf("the server read %d lines", lines.Load())
	}
	p.Pass()
	works(t, dial(t, p))
}

func TestHalfOpen(t *testing.T) {
	p, lines := start(t)
	c := dial(t, p)
	p.Set(Mode{HalfOpen: true})
	timesOut(t, c)
	if lines.Load() != 1 {
		t.Errorf("the server read %d lines, want the one whose reply was swallowed", lines.Load())
	}
}

func TestRefuseResetCut(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	works(t, c)
	p.Reset()
	if _, err := ask(c, "x", long); err == nil {
		t.Error("a connection that was reset answers")
	}
	p.Set(Mode{CutAfter: 3})
	cut := dial(t, p)
	if got, err := ask(cut, "hello", long); got == "hello" || err == nil {
		t.Errorf("a reply that was cut: %q, %v", got, err)
	}
	p.Set(Mode{Refuse: true})
	// The reset may come before Dial has returned.
	if refused, err := net.Dial("tcp", p.Addr()); err == nil {
		if _, err := ask(refused, "x", long); err == nil {
			t.Error("a connection that was refused answers")
		}
		_ = refused.Close()
	}
	p.Pass()
	works(t, dial(t, p))
	if p.Accepted() != 4 {
		t.Errorf("%d connections accepted", p.Accepted())
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	p.Set(Mode{ReplyDelay: time.Hour})
	timesOut(t, c)
	p.Set(Mode{BlackHole: true})
	dial(t, p)
	p.Close()
	p.Close()
}
