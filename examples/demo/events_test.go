package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// stream reads server-sent events until its test ends.
type stream struct {
	*testing.T
	resp  *http.Response
	lines *bufio.Scanner
}

func listenTo(t *testing.T, srv *httptest.Server) *stream {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	s := &stream{T: t, resp: resp, lines: bufio.NewScanner(resp.Body)}
	s.lines.Buffer(nil, 1<<20)
	return s
}

// next returns the next event of a name, into v.
func (s *stream) next(name string, v any) {
	s.Helper()
	current := ""
	for s.lines.Scan() {
		line := s.lines.Text()
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			current = n
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && current == name {
			if err := json.Unmarshal([]byte(data), v); err != nil {
				s.Fatal(err)
			}
			return
		}
	}
	s.Fatalf("the stream ended before %q: %v", name, s.lines.Err())
}

// TestEvents: the whole state first, then what changes.
func TestEvents(t *testing.T) {
	t.Parallel()
	_, srv := alone(t)
	s := listenTo(t, srv)
	if s.resp.StatusCode != 200 || s.resp.Header.Get("Content-Type") != "text/event-stream" || s.resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", s.resp.StatusCode, s.resp.Header)
	}
	var whole wholeState
	s.next("state", &whole)
	if len(whole.Algorithms) != 7 || len(whole.Cards) != 7 || len(whole.Processes) != 4 || len(whole.Fleets) != 2 || len(whole.Lines) != 2 || whole.Now == 0 || whole.Traffic.Rate != 100 {
		t.Errorf("%+v", whole)
	}
	var d decision
	askFor(t, srv, "POST", "/api/attempt", `{"algorithm":"gcra","n":2}`, &d)
	var c cardState
	s.next("card", &c)
	if c.Algorithm != "gcra" || c.Allowed != 1 || len(c.Decisions) != 1 || c.Decisions[0] != d || d.Cost != 2 || d.Remaining != 8 {
		t.Errorf("%+v, want %+v", c, d)
	}
	var live liveState
	for sum := 0; sum < 50; {
		s.next("second", &live)
		sum = live.Second.Admitted["redis"]
	}
	if len(live.Processes) != 4 || live.Processes[0].Servers[0].Breaker != "closed" || live.Second.Fault != healthy || live.Totals.Bound == 0 {
		t.Errorf("%+v", live)
	}
	var r redisState
	act(t, srv, "slow")
	s.next("fault", &r)
	if r.Fault != slow {
		t.Errorf("%+v", r)
	}
	askFor(t, srv, "POST", "/api/reset", `{}`, &map[string]bool{})
	s.next("state", &whole)
}

// TestListenersAreBounded: one page too many is told so, and has a place when another
// is closed.
func TestListenersAreBounded(t *testing.T) {
	a, srv := alone(t)
	var streams []*stream
	for range maxListeners {
		s := listenTo(t, srv)
		s.next("state", &wholeState{})
		streams = append(streams, s)
	}
	resp, answer := request(t, srv, "GET", "/api/events", "")
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(answer, "listeners is 16") {
		t.Fatalf("%d %s", resp.StatusCode, answer)
	}
	_ = streams[0].resp.Body.Close()
	until(t, "there is a place", func() bool {
		a.hub.mu.Lock()
		defer a.hub.mu.Unlock()
		return len(a.hub.listeners) < maxListeners
	})
	listenTo(t, srv).next("state", &wholeState{})
}

// TestSlowListenerIsLetGo: nobody waits for one that does not read.
func TestSlowListenerIsLetGo(t *testing.T) {
	t.Parallel()
	var h hub
	slow, quick := h.listen(), h.listen()
	for range backlog + 1 {
		h.publish("second", 1)
		<-quick
	}
	n := 0
	for range slow {
		n++
	}
	if n != backlog {
		t.Errorf("%d events before the end", n)
	}
	h.leave(slow) // again
	h.close()
	if _, open := <-quick; open || h.listen() != nil {
		t.Error("a closed hub goes on")
	}
}
