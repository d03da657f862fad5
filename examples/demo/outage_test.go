package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// until waits for something that the traffic brings about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// last is the latest second of the traffic.
func last(a *app) second {
	if past := a.traffic.history(); len(past) > 0 {
		return past[len(past)-1]
	}
	return newSecond()
}

// act presses a button.
func act(t *testing.T, srv *httptest.Server, action string) {
	t.Helper()
	var s redisState
	askFor(t, srv, "POST", "/api/outage", `{"action":"`+action+`"}`, &s)
	want := map[string]fault{"kill": killed, "freeze": frozen, "slow": slow, "restore": healthy, "flush-scripts": healthy}[action]
	if s.Fault != want {
		t.Errorf("after %s Redis is %s", action, s.Fault)
	}
}

// tenfold is the demo with ten times its budget, and a fault that is slower by as much:
// a busy machine decides within it.
func tenfold(c *config) {
	c.budget, c.slowBy = 10*defaults().budget, 10*c.slowBy
}

// breakRedis presses each button, and looks at who decides: traffic goes on within the
// bound, without an error.
func breakRedis(t *testing.T, a *app, srv *httptest.Server, broken func(action string)) {
	t.Helper()
	// By denials too: how much a process admits alone goes by what it was granted before, on a busy machine little.
	by := func(one, other string) bool {
		s := last(a)
		return s.Admitted[one] > 0 && s.Admitted[one]+s.Denied[one] > 20 && s.Admitted[other]+s.Denied[other] == 0
	}
	alone := func() bool { return by("local", "redis") }
	together := func() bool { return by("redis", "local") }
	defer func() {
		if t.Failed() {
			history := a.traffic.history()
			t.Logf("the last seconds: %+v", history[max(0, len(history)-5):])
		}
	}()
	until(t, "Redis decides", together)
	for _, action := range []string{"kill", "freeze", "slow"} {
		act(t, srv, action)
		broken(action)
		until(t, action+": the processes decide", alone)
		act(t, srv, "restore")
		until(t, action+": Redis decides again", together)
	}
	// One fault after the other, without a restore between them.
	for _, action := range []string{"slow", "freeze", "slow", "kill", "kill"} {
		act(t, srv, action)
	}
	for _, action := range []string{"freeze", "slow", "flush-scripts"} {
		resp, answer := request(t, srv, "POST", "/api/outage", `{"action":"`+action+`"}`)
		if resp.StatusCode != http.StatusConflict || !strings.Contains(answer, `"field":"action"`) {
			t.Errorf("%s of what is killed: %d %s", action, resp.StatusCode, answer)
		}
	}
	act(t, srv, "restore")
	act(t, srv, "restore")
	until(t, "Redis decides at the end", together)
	for _, s := range a.traffic.history() {
		if sum := s.Admitted["redis"] + s.Admitted["local"]; s.Errors > 0 || sum > s.Most {
			t.Errorf("%d admitted: %+v", sum, s)
		}
	}
	if sum := a.traffic.totals(); sum.Admitted > sum.Bound || sum.Admitted == 0 {
		t.Errorf("%+v", sum)
	}
}

// TestOutageOfOwnServer: it is the process that is killed and frozen.
func TestOutageOfOwnServer(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	a, srv := startDemo(t, demo.StartProcess, tenfold)
	breakRedis(t, a, srv, func(string) {})
	act(t, srv, "flush-scripts")
	before := a.cards[0].state().Allowed
	var d decision
	askFor(t, srv, "POST", "/api/attempt", `{"algorithm":"gcra"}`, &d)
	if a.cards[0].state().Allowed != before {
		t.Error("another card has counted")
	}
	until(t, "Redis decides without its scripts", func() bool {
		s := last(a)
		return s.Admitted["redis"] > 20 && s.Admitted["local"] == 0 && s.Errors == 0
	})
}

// TestPlainScript: what has only Redis makes errors and hangs where Holdfast does not, and the
// program ends also then.
func TestPlainScript(t *testing.T) {
	t.Parallel()
	redistest.Require(t)
	a, srv := startDemo(t, demo.StartProcess)
	until(t, "the script admits", func() bool { return last(a).Plain.Admitted > 20 })
	act(t, srv, "kill")
	until(t, "the script makes errors", func() bool { return last(a).Plain.Errors > 0 })
	act(t, srv, "restore")
	until(t, "the script admits again", func() bool { return last(a).Plain.Admitted > 20 })
	act(t, srv, "freeze")
	until(t, "all callers of the script hang", func() bool { return last(a).Plain.Hanging == len(a.traffic.plain.waiting.since) })
	for _, s := range a.traffic.history() {
		if s.Errors > 0 {
			t.Errorf("%+v", s)
		}
	}
	t.Cleanup(func() { // before the program is closed, and then again
		a.cancel()
		if err := a.outage.release(); err != nil || a.outage.fault() != healthy {
			t.Errorf("%v, and Redis is %s", err, a.outage.fault())
		}
	})
}

// TestPercentile: 99 of 100 did not take longer.
func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		n            int // 1 ms, 2 ms … n ms
		p99, longest float64
	}{{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {99, 99, 99}, {100, 99, 100}, {101, 100, 101}, {200, 198, 200}, {1000, 990, 1000}} {
		var of times
		for i := range c.n {
			of.note(time.Duration(c.n-i) * time.Millisecond)
		}
		all := of.p99()
		if p, longest := of.cut(); p != c.p99 || longest != c.longest || all != p {
			t.Errorf("%d: %v and %v of the second, %v of all", c.n, p, longest, all)
		}
	}
	var of times
	for range 2 * minute {
		of.note(time.Second)
		of.cut()
	}
	if len(of) != minute+1 {
		t.Errorf("%d seconds are kept", len(of))
	}
}

// TestOutageOfEmbedded: the embedded server is killed, and frozen by the proxy.
func TestOutageOfEmbedded(t *testing.T) {
	t.Parallel()
	a, srv := alone(t, tenfold)
	breakRedis(t, a, srv, func(string) {})
	act(t, srv, "flush-scripts")
}

// TestForeignServerIsLeftAlone: what the buttons do to the server of REDIS_URL they do
// to a proxy.
func TestForeignServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, srv := startDemo(t, func() (*demo.Redis, error) { return demo.UseForeign("redis://" + server.Addr()) }, tenfold)
	admin := redistest.Admin(t, server)
	pid := server.PID()
	breakRedis(t, a, srv, func(action string) {
		if err := admin.Ping(t.Context()).Err(); err != nil {
			t.Errorf("after %s the server does not answer: %v", action, err)
		}
	})
	resp, answer := request(t, srv, "POST", "/api/outage", `{"action":"flush-scripts"}`)
	var p problem
	if err := json.Unmarshal([]byte(answer), &p); err != nil || resp.StatusCode != http.StatusConflict || p.Field != "action" {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	var s wholeState
	askFor(t, srv, "GET", "/api/state", "", &s)
	if s.Redis.WhyNoFlush == "" || s.Redis.Kind != "foreign" || strings.Contains(s.Redis.What, "no outage") {
		t.Errorf("%+v", s.Redis)
	}
	askFor(t, srv, "POST", "/api/reset", `{}`, &map[string]bool{})
	for _, command := range []string{"script|flush", "flushall", "flushdb", "shutdown", "config|set", "client|pause", "debug"} {
		if n := redistest.Calls(t, server, command); n > 0 {
			t.Errorf("%s was sent", command)
		}
	}
	if server.PID() != pid {
		t.Error("the server was restarted")
	}
	keys, err := admin.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, "holdfast-demo-") {
			t.Errorf("the key %q", key)
		}
		if ttl, err := admin.TTL(t.Context(), key).Result(); err != nil || ttl < 0 {
			t.Errorf("%q stays: %v %v", key, ttl, err)
		}
	}
}

// TestForeignServerThatIsNotThere: the page works without it.
func TestForeignServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	_, srv := startDemo(t, func() (*demo.Redis, error) { return demo.UseForeign("redis://127.0.0.1:1") })
	var d decision
	askFor(t, srv, "POST", "/api/attempt", `{"algorithm":"gcra"}`, &d)
	if !d.Allowed || d.Source != "local" {
		t.Errorf("%+v", d)
	}
	var done struct{ Reset, Redis bool }
	askFor(t, srv, "POST", "/api/reset", `{}`, &done)
	if !done.Reset || done.Redis {
		t.Errorf("%+v", done)
	}
}

// TestFleet: with the shared cooldown, the same work costs fewer refusals.
func TestFleet(t *testing.T) {
	t.Parallel()
	a, srv := alone(t, calm)
	var all struct{ Fleets []fleetState }
	for range 2 { // the second changes nothing
		askFor(t, srv, "POST", "/api/fleet", `{"running":true}`, &all)
	}
	if len(all.Fleets) != 2 || !all.Fleets[0].Running || !all.Fleets[1].Running || all.Fleets[0].Shared || !all.Fleets[1].Shared {
		t.Fatalf("%+v", all)
	}
	until(t, "those on their own are refused", func() bool { return a.fleets[0].state(false).Refused >= 48 })
	until(t, "both are served", func() bool { return a.fleets[1].state(false).Served >= 2*quota })
	for _, f := range a.fleets {
		until(t, "all workers pause", func() bool {
			paused := map[int]bool{}
			for _, s := range f.state(true).Seconds {
				for _, p := range s.Pauses {
					paused[p.Worker] = p.From < p.Until && p.Until <= s.At+1
				}
			}
			return paused[0] && paused[1] && paused[2] && paused[3]
		})
	}
	askFor(t, srv, "POST", "/api/fleet", `{"shared":true,"running":false}`, &all)
	if !all.Fleets[0].Running || all.Fleets[1].Running {
		t.Errorf("%+v", all)
	}
	askFor(t, srv, "POST", "/api/fleet", `{"running":false}`, &all)
	if fmt.Sprint(all.Fleets[0].Running, all.Fleets[1].Running) != "false false" {
		t.Errorf("%+v", all)
	}
}
