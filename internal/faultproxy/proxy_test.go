package faultproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

const long = time.Minute

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

// soon polls for something that another goroutine is about to bring about.
func soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(long); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// swallowed waits until the proxy has swallowed so many bytes.
func swallowed(t *testing.T, p *Proxy, bytes int64) {
	t.Helper()
	soon(t, fmt.Sprint(bytes, " bytes are swallowed"), func() bool { return p.Stats().Swallowed == bytes })
}

// broken reports whether the connection was ended by a RST.
func broken(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(long))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, syscall.ECONNRESET)
}

func TestCounts(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	works(t, c)
	works(t, dial(t, p))
	// What is counted once it was written may be answered before.
	soon(t, "all is counted", func() bool {
		return p.Stats() == Stats{Accepted: 2, Open: 2, ToServer: 12, ToClient: 12}
	})
	if p.Accepted() != 2 {
		t.Errorf("%d accepted", p.Accepted())
	}
	_ = c.Close()
	soon(t, "one connection less", func() bool { return p.Stats().Open == 1 })
}

// A request that ends with the client's half of the connection has its reply.
func TestHalfClose(t *testing.T) {
	p, _ := start(t)
	p.Set(Mode{Delay: 5 * time.Millisecond, ReplyDelay: 5 * time.Millisecond})
	c := dial(t, p)
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(long))
	if got, err := io.ReadAll(c); string(got) != "hello\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTargetDown(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	p, err := New(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil { // the RST can come before the dialler has had a look
		return
	}
	defer c.Close()
	if !broken(c) {
		t.Error("a connection to nobody stays open")
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	for _, m := range []Mode{{ReplyDelay: time.Hour}, {BytesPerSecond: 1}, {BlackHole: true}} {
		p.Set(m)
		timesOut(t, c)
		c = dial(t, p)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(p.Close)
	}
	wg.Wait()
	p.Set(Mode{Refuse: true})
	p.Pass()
	p.Reset()
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		_ = c.Close()
		t.Error("a closed proxy accepts connections")
	}
}

// Any order of modes, under traffic: a reply is right or missing, and in the end
// all works.
func TestModesUnderTraffic(t *testing.T) {
	p, _ := start(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue
				}
				for k := range 5 {
					line := fmt.Sprint(i, n, k)
					if got, err := ask(c, line, 20*time.Millisecond); err == nil && got != line {
						t.Errorf("asked %q, heard %q", line, got)
					} else if err != nil {
						break
					}
				}
				_ = c.Close()
			}
		})
	}
	modes := []Mode{{}, {HalfOpen: true}, {BlackHole: true}, {Refuse: true}, {Delay: time.Millisecond}, {CutAfter: 3}, {BytesPerSecond: 1000}}
	for range 15 {
		for i, m := range modes {
			p.Set(m)
			before := p.Accepted()
			soon(t, fmt.Sprint("traffic in mode ", i), func() bool { return p.Accepted() > before })
			p.Reset()
		}
	}
	p.Pass()
	close(stop)
	wg.Wait()
	works(t, dial(t, p))
}
