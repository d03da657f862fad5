package wait_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/wait"
)

const ms = time.Millisecond

// actor is a waiter whose answers are written down. Each takes a millisecond, or what takes says.
type actor struct {
	name     string
	arrives  time.Duration
	n        int
	critical bool
	answers  []wait.Answer
	takes    []time.Duration
	gives    time.Duration // up in its sleep, this long after its arrival; 0 is never

	on    *stage
	left  *time.Timer
	asked int
}

var errGivesUp = errors.New("gives up")

// stage writes down what happens, and when.
type stage struct {
	lines wait.Lines[string]
	start time.Time
	mu    sync.Mutex
	said  []event
}

type event struct {
	at   time.Duration
	what string
}

func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, event{time.Since(s.start), fmt.Sprintf(format, args...)})
}

func (a *actor) Ask() (wait.Answer, error) {
	a.on.note("%s asks", a.name)
	took := ms
	if a.asked < len(a.takes) {
		took = a.takes[a.asked]
	}
	time.Sleep(took)
	answer := a.answers[min(a.asked, len(a.answers)-1)]
	a.asked++
	return answer, nil
}

func (a *actor) Queue(ahead int, after time.Duration) error {
	a.on.note("%s stands behind %d, %v", a.name, ahead, after)
	return nil
}

func (a *actor) Sleep(d time.Duration, called <-chan struct{}) error {
	var over <-chan time.Time
	if d >= 0 {
		over = time.After(d)
	}
	var gone <-chan time.Time
	if a.left != nil {
		gone = a.left.C
	}
	select {
	case <-over:
	case <-called:
	case <-gone:
		return errGivesUp
	}
	return nil
}

// play returns what happened, a line for each moment.
func play(t *testing.T, actors []*actor, calls ...time.Duration) string {
	t.Helper()
	var said strings.Builder
	synctest.Test(t, func(t *testing.T) {
		s := &stage{start: time.Now()}
		var all sync.WaitGroup
		for _, a := range actors {
			a.on = s
			all.Go(func() {
				time.Sleep(a.arrives)
				if a.gives > 0 {
					a.left = time.NewTimer(a.gives)
				}
				if err := s.lines.Wait("k", a.n, a.critical, a); err != nil {
					s.note("%s %v", a.name, err)
					return
				}
				s.note("%s goes", a.name)
			})
		}
		all.Go(func() {
			time.Sleep(30 * ms)
			s.lines.Call(func(key string) bool { return key != "k" })
		})
		for _, at := range calls {
			all.Go(func() {
				time.Sleep(at)
				s.lines.Call(func(key string) bool { return key == "k" })
			})
		}
		all.Wait()
		if behind := s.lines.Look("k", false); behind != (wait.Ahead{}) && behind.Any {
			t.Error("a line is left")
		}
		slices.SortFunc(s.said, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.what, b.what)) })
		for i, e := range s.said {
			switch {
			case i > 0 && s.said[i-1].at == e.at:
				said.WriteString("; " + e.what)
			case i > 0:
				said.WriteString("\n")
				fallthrough
			default:
				fmt.Fprintf(&said, "%v: %s", e.at, e.what)
			}
		}
	})
	return said.String()
}

var goes = wait.Answer{Go: true}

func denied(after time.Duration) wait.Answer { return wait.Answer{After: after} }

// TestLines: what the waiters of a line do, moment by moment.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		name   string
		actors []*actor
		calls  []time.Duration
		want   string
	}{
		{name: "the first one asks, the others when it went", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), goes}},
			{name: "b", n: 2, arrives: 10 * ms, answers: []wait.Answer{denied(50 * ms), goes}},
			{name: "c", n: 1, arrives: 20 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 91ms
			20ms: c stands behind 3, 81ms
			101ms: a asks
			102ms: a goes; b asks
			153ms: b asks
			154ms: b goes; c asks
			155ms: c goes
		`},
		{name: "who leaves passes its denial on to what costs as much", actors: []*actor{
			{name: "a", n: 5, gives: 50 * ms, answers: []wait.Answer{denied(100 * ms)}},
			{name: "b", n: 5, arrives: 10 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 5, 91ms
			50ms: a gives up
			101ms: b asks
			102ms: b goes
		`},
		{name: "and not to what costs less", actors: []*actor{
			{name: "a", n: 5, gives: 50 * ms, answers: []wait.Answer{denied(100 * ms)}},
			{name: "b", n: 4, arrives: 10 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 5, 91ms
			50ms: a gives up; b asks
			51ms: b goes
		`},
		{name: "when one of those went, nothing is known of the others", actors: []*actor{
			{name: "a", n: 5, gives: 50 * ms, answers: []wait.Answer{denied(100 * ms)}},
			{name: "b", n: 4, arrives: 10 * ms, answers: []wait.Answer{goes}},
			{name: "c", n: 4, arrives: 20 * ms, answers: []wait.Answer{goes}},
			{name: "d", n: 6, arrives: 30 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 5, 91ms
			20ms: c stands behind 9, 81ms
			30ms: d stands behind 13, 71ms
			50ms: a gives up; b asks
			51ms: b goes; c asks
			52ms: c goes; d asks
			53ms: d goes
		`},
		{name: "nor where it says nothing of others", actors: []*actor{
			{name: "a", n: 5, gives: 50 * ms, answers: []wait.Answer{{After: 100 * ms, Own: true}}},
			{name: "b", n: 7, arrives: 10 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 5, 91ms
			50ms: a gives up; b asks
			51ms: b goes
		`},
		{name: "that of a critical one holds for all", actors: []*actor{
			{name: "a", n: 5, answers: []wait.Answer{denied(100 * ms), goes}},
			{name: "b", n: 5, critical: true, arrives: 10 * ms, gives: 40 * ms, answers: []wait.Answer{denied(200 * ms)}},
		}, want: `
			0s: a asks
			10ms: b asks
			11ms: a stands behind 5, 200ms
			50ms: b gives up
			211ms: a asks
			212ms: a goes
		`},
		{name: "one that leaves behind others changes nothing", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), goes}},
			{name: "b", n: 2, gives: 20 * ms, arrives: 10 * ms},
			{name: "c", n: 1, arrives: 40 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 91ms
			30ms: b gives up
			40ms: c stands behind 1, 61ms
			101ms: a asks
			102ms: a goes; c asks
			103ms: c goes
		`},
		{name: "those that asked before there was a line stand in it by their arrival, and hear of those before them", actors: []*actor{
			{name: "a", n: 1, takes: []time.Duration{10 * ms}, answers: []wait.Answer{denied(100 * ms), goes}},
			{name: "b", n: 2, arrives: 1 * ms, takes: []time.Duration{12 * ms}, answers: []wait.Answer{denied(100 * ms), goes}},
			{name: "c", n: 4, arrives: 2 * ms, takes: []time.Duration{9 * ms}, answers: []wait.Answer{denied(100 * ms), goes}},
		}, want: `
			0s: a asks
			1ms: b asks
			2ms: c asks
			11ms: c stands behind 1, 99ms
			13ms: b stands behind 1, 97ms
			110ms: a asks
			111ms: a goes; b asks; c stands behind 2, 0s
			112ms: b goes; c asks
			113ms: c goes
		`},
		{name: "the first of its rank stands behind the critical ones only", actors: []*actor{
			{name: "a", n: 1, takes: []time.Duration{20 * ms}, answers: []wait.Answer{denied(100 * ms), goes}},
			{name: "b", n: 2, arrives: 1 * ms, takes: []time.Duration{5 * ms}, answers: []wait.Answer{denied(100 * ms), goes}},
			{name: "c", n: 4, critical: true, arrives: 8 * ms, answers: []wait.Answer{denied(100 * ms), goes}},
		}, want: `
			0s: a asks
			1ms: b asks
			8ms: c asks
			9ms: b stands behind 4, 100ms
			20ms: a stands behind 4, 89ms
			109ms: c asks
			110ms: a asks; c goes
			111ms: a goes; b asks
			112ms: b goes
		`},
		{name: "critical ones go first, each rank by arrival", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), goes}},
			{name: "b", n: 2, critical: true, arrives: 10 * ms, answers: []wait.Answer{denied(60 * ms), goes}},
			{name: "c", n: 4, critical: true, arrives: 20 * ms, answers: []wait.Answer{goes}},
			{name: "d", n: 8, arrives: 30 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b asks
			11ms: a stands behind 2, 60ms
			20ms: c stands behind 2, 51ms
			30ms: d stands behind 7, 41ms
			71ms: b asks
			72ms: a stands behind 4, 0s; b goes; c asks
			73ms: a asks; c goes
			74ms: a goes; d asks
			75ms: d goes
		`},
		{name: "a critical one that may go does not stand in line", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), goes}},
			{name: "b", n: 1, critical: true, arrives: 10 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b asks
			11ms: b goes
			101ms: a asks
			102ms: a goes
		`},
		{name: "those that fit into the room ask together", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), {Go: true, Room: 3}}},
			{name: "b", n: 1, arrives: 10 * ms, answers: []wait.Answer{{Go: true, Room: 2}}},
			{name: "c", n: 2, arrives: 11 * ms, answers: []wait.Answer{{Go: true, Room: 2}}},
			{name: "d", n: 1, arrives: 12 * ms, answers: []wait.Answer{denied(100 * ms), goes}, takes: []time.Duration{2 * ms}},
			{name: "e", n: 1, arrives: 13 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 91ms
			11ms: c stands behind 2, 90ms
			12ms: d stands behind 4, 89ms
			13ms: e stands behind 5, 88ms
			101ms: a asks
			102ms: a goes; b asks; c asks
			103ms: b goes; c goes; d asks; e asks
			104ms: e goes
			205ms: d asks
			206ms: d goes
		`},
		{name: "room that others took first", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), {Go: true, Room: 2}}},
			{name: "b", n: 1, arrives: 10 * ms, answers: []wait.Answer{denied(30 * ms), goes}},
			{name: "c", n: 1, arrives: 11 * ms, answers: []wait.Answer{denied(30 * ms), goes}},
			{name: "d", n: 1, arrives: 12 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 91ms
			11ms: c stands behind 2, 90ms
			12ms: d stands behind 3, 89ms
			101ms: a asks
			102ms: a goes; b asks; c asks
			133ms: b asks
			134ms: b goes; c asks
			135ms: c goes; d asks
			136ms: d goes
		`},
		{name: "the least room of the answers counts, and nobody waits for that of the first alone", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), {Go: true, Room: 3}}},
			{name: "b", n: 1, arrives: 10 * ms, answers: []wait.Answer{{Go: true, Room: 5}}},
			{name: "c", n: 1, arrives: 11 * ms, answers: []wait.Answer{{Go: true, Room: 1}}, takes: []time.Duration{4 * ms}},
			{name: "d", n: 1, arrives: 12 * ms, answers: []wait.Answer{{Go: true, Room: 4}}, takes: []time.Duration{2 * ms}},
			{name: "e", n: 1, arrives: 13 * ms, answers: []wait.Answer{goes}},
			{name: "f", n: 1, arrives: 14 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 91ms
			11ms: c stands behind 2, 90ms
			12ms: d stands behind 3, 89ms
			13ms: e stands behind 4, 88ms
			14ms: f stands behind 5, 87ms
			101ms: a asks
			102ms: a goes; b asks; c asks; d asks
			103ms: b goes
			104ms: d goes; e asks; f asks
			105ms: e goes; f goes
			106ms: c goes
		`},
		{name: "after a denial the next answer counts", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), {Go: true, Room: 3}}},
			{name: "b", n: 1, arrives: 10 * ms, answers: []wait.Answer{{Go: true, Room: 5}}, takes: []time.Duration{4 * ms}},
			{name: "c", n: 1, arrives: 11 * ms, answers: []wait.Answer{denied(20 * ms), goes}, takes: []time.Duration{2 * ms}},
			{name: "d", n: 1, arrives: 12 * ms, answers: []wait.Answer{goes}, takes: []time.Duration{3 * ms}},
			{name: "e", n: 1, arrives: 13 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 91ms
			11ms: c stands behind 2, 90ms
			12ms: d stands behind 3, 89ms
			13ms: e stands behind 4, 88ms
			101ms: a asks
			102ms: a goes; b asks; c asks; d asks
			105ms: d goes
			106ms: b goes; c asks; e asks
			107ms: c goes; e goes
		`},
		{name: "the first one alone asks again after its denial", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), {Go: true, Room: 2}}},
			{name: "b", n: 1, arrives: 10 * ms, answers: []wait.Answer{denied(50 * ms), goes}, takes: []time.Duration{4 * ms}},
			{name: "c", n: 1, arrives: 11 * ms, answers: []wait.Answer{{Go: true, Room: 5}}, takes: []time.Duration{2 * ms}},
			{name: "d", n: 1, arrives: 12 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 91ms
			11ms: c stands behind 2, 90ms
			12ms: d stands behind 3, 89ms
			101ms: a asks
			102ms: a goes; b asks; c asks
			104ms: c goes; d asks
			105ms: d goes
			156ms: b asks
			157ms: b goes
		`},
		{name: "a critical newcomer asks in the place of the first, which sleeps on", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), goes}},
			{name: "b", n: 1, critical: true, arrives: 10 * ms, answers: []wait.Answer{denied(200 * ms), goes}},
		}, want: `
			0s: a asks
			10ms: b asks
			11ms: a stands behind 1, 200ms
			211ms: b asks
			212ms: a asks; b goes
			213ms: a goes
		`},
		{name: "what costs nothing takes no room", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), {Go: true, Room: 2}}},
			{name: "b", n: 0, arrives: 10 * ms, answers: []wait.Answer{goes}, takes: []time.Duration{2 * ms}},
			{name: "c", n: 2, arrives: 11 * ms, answers: []wait.Answer{goes}},
			{name: "d", n: 1, arrives: 12 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 91ms
			11ms: c stands behind 1, 90ms
			12ms: d stands behind 3, 89ms
			101ms: a asks
			102ms: a goes; b asks; c asks
			103ms: c goes
			104ms: b goes; d asks
			105ms: d goes
		`},
		{name: "beyond the room they leave others their part", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(100 * ms), {Go: true, Room: 1, After: 20 * ms}}},
			{name: "b", n: 1, arrives: 10 * ms, answers: []wait.Answer{{Go: true, Room: 1, After: 20 * ms}}},
			{name: "c", n: 1, arrives: 11 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 91ms
			11ms: c stands behind 2, 90ms
			101ms: a asks
			102ms: a goes; b asks
			103ms: b goes
			122ms: c asks
			123ms: c goes
		`},
		{name: "a line that is called asks at once", calls: []time.Duration{50 * ms}, actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(time.Hour), denied(40 * ms), goes}},
			{name: "b", n: 1, arrives: 10 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 59m59.991s
			50ms: a asks
			91ms: a asks
			92ms: a goes; b asks
			93ms: b goes
		`},
		{name: "a line that is called while the first asks, asks again", calls: []time.Duration{61*ms + ms/2}, actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(60 * ms), denied(time.Hour), goes}},
		}, want: `
			0s: a asks
			61ms: a asks
			62ms: a asks
			63ms: a goes
		`},
		{name: "a call before there is a line is not lost", calls: []time.Duration{ms / 2}, actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(time.Hour), goes}},
		}, want: `
			0s: a asks
			1ms: a asks
			2ms: a goes
		`},
		{name: "who waits for something else steps aside, and is the first again", actors: []*actor{
			{name: "a", n: 9, answers: []wait.Answer{{After: 100 * ms, Aside: true}, denied(20 * ms), goes}},
			{name: "b", n: 1, arrives: 10 * ms, answers: []wait.Answer{denied(120 * ms), goes}},
			{name: "c", n: 1, arrives: 20 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b asks
			20ms: c stands behind 1, 111ms
			131ms: a asks
			132ms: b stands behind 9, 20ms; c stands behind 10, 20ms
			152ms: a asks
			153ms: a goes; b asks
			154ms: b goes; c asks
			155ms: c goes
		`},
		{name: "who stepped aside is before those that came later", actors: []*actor{
			{name: "a", n: 9, answers: []wait.Answer{{After: 50 * ms, Aside: true}, goes}},
			{name: "b", n: 9, arrives: 10 * ms, answers: []wait.Answer{denied(200 * ms), goes}},
			{name: "c", n: 9, arrives: 20 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b asks
			20ms: c stands behind 9, 191ms
			211ms: a asks
			212ms: a goes; b asks
			213ms: b goes; c asks
			214ms: c goes
		`},
		{name: "whose sleep ends while it stands aside", actors: []*actor{
			{name: "a", n: 9, gives: 50 * ms, answers: []wait.Answer{{After: 100 * ms, Aside: true}}},
			{name: "b", n: 1, arrives: 10 * ms, answers: []wait.Answer{denied(20 * ms), goes}},
		}, want: `
			0s: a asks
			10ms: b asks
			31ms: b asks
			32ms: b goes
			50ms: a gives up
		`},
		{name: "what costs nothing waits for its turn as well", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{denied(30 * ms), goes}},
			{name: "b", n: 0, arrives: 10 * ms, answers: []wait.Answer{denied(10 * ms), goes}},
			{name: "c", n: 1, arrives: 35 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 21ms
			31ms: a asks
			32ms: a goes; b asks
			35ms: c stands behind 0, 8ms
			43ms: b asks
			44ms: b goes; c asks
			45ms: c goes
		`},
		{name: "newcomers hear of the least time", actors: []*actor{
			{name: "a", n: 1, answers: []wait.Answer{{After: 20 * ms, Least: 100 * ms}, goes}},
			{name: "b", n: 1, arrives: 10 * ms, answers: []wait.Answer{goes}},
		}, want: `
			0s: a asks
			10ms: b stands behind 1, 91ms
			21ms: a asks
			22ms: a goes; b asks
			23ms: b goes
		`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := play(t, c.actors, c.calls...); got != strings.TrimSpace(strings.ReplaceAll(c.want, "\t", "")) {
				t.Errorf("got\n%s", got)
			}
		})
	}
}
