package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/examples/internal/demo"
	"github.com/holdfast-go/holdfast/limiter"
)

type config struct {
	addr                   string
	processes, rate, burst int
	budget                 time.Duration
	slowBy                 time.Duration // what the button Slow adds to each answer
}

func (c config) validate() error {
	switch {
	case c.processes < 1 || c.processes > 8:
		return fmt.Errorf("processes is %d: must be from 1 to 8", c.processes)
	case c.rate < 10 || c.rate > 1000:
		return fmt.Errorf("rate is %d: must be from 10 to 1000", c.rate)
	case c.burst < 1 || c.burst > 10*c.rate:
		return fmt.Errorf("burst is %d: must be from 1 to ten times the rate, which is %d", c.burst, c.rate)
	case c.budget < 5*time.Millisecond || c.budget > 5*time.Second:
		return fmt.Errorf("budget is %v: must be from 5ms to 5s", c.budget)
	}
	return nil
}

// app is everything behind the page.
type app struct {
	cfg     config
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	outage  *outage
	rdb     *redis.Client // of the cards
	cards   []*card
	traffic *traffic
	fleets  []*fleet
	lines   []*line
	// linesBusy is held while callers wait in the lines.
	linesBusy sync.Mutex
	own       *limiter.Limiter // the limit of the API itself
	hub       hub
	tasks     sync.WaitGroup
}

func newApp(cfg config, srv *demo.Redis) (*app, error) {
	a := &app{cfg: cfg}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	if err := a.build(srv); err != nil {
		return nil, errors.Join(err, a.close())
	}
	a.tasks.Go(func() { a.traffic.run(a.ctx) })
	a.tasks.Go(a.tick)
	return a, nil
}

func (a *app) build(srv *demo.Redis) (err error) {
	changed := func() { a.hub.publish("fault", a.redisState()) }
	if a.outage, err = newOutage(srv, a.cfg.slowBy, changed, func() { a.traffic.emptied() }); err != nil {
		return err
	}
	a.rdb = a.outage.client()
	// A foreign server may serve another page too.
	prefix := "holdfast-demo-" + rand.Text()[:6]
	for _, alg := range algorithms {
		c, err := newCard(alg, a.rdb, prefix, a.cfg.budget, &a.hub)
		if err != nil {
			return err
		}
		a.cards = append(a.cards, c)
	}
	if a.traffic, err = newTraffic(a.cfg, a.outage, prefix); err != nil {
		return err
	}
	for _, shared := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		f, err := newFleet(shared, l, new(net.Dialer).DialContext, a.outage.client, prefix, a.cfg.budget)
		if err != nil {
			return err
		}
		a.fleets = append(a.fleets, f)
	}
	for _, inTurn := range []bool{true, false} {
		l, err := newLine(inTurn, a.outage.client(), prefix, a.cfg.budget, &a.hub)
		if err != nil {
			return err
		}
		a.lines = append(a.lines, l)
	}
	a.own, err = limiter.NewLocal(limiter.GCRA(limiter.PerSecond(50), 100))
	return err
}

// close ends everything but the server.
func (a *app) close() error {
	a.cancel()
	a.hub.close()
	var errs []error
	if a.traffic != nil { // its calls may hang, and end by this
		errs = append(errs, a.traffic.plain.close())
	}
	a.tasks.Wait()
	if a.outage != nil {
		errs = append(errs, a.outage.release())
	}
	for _, f := range a.fleets {
		errs = append(errs, f.close())
	}
	for _, l := range a.lines {
		errs = append(errs, l.close())
	}
	if a.traffic != nil {
		errs = append(errs, a.traffic.close())
	}
	for _, c := range a.cards {
		errs = append(errs, c.close())
	}
	if a.rdb != nil {
		errs = append(errs, a.rdb.Close())
	}
	for _, c := range a.cards {
		c.tasks.Wait()
	}
	if a.own != nil {
		errs = append(errs, a.own.Close())
	}
	if a.outage != nil {
		a.outage.close()
	}
	return errors.Join(errs...)
}

// tick ends a second after the other.
func (a *app) tick() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case now := <-ticker.C:
			live := liveState{Second: a.traffic.cut(now, a.outage.fault()), Totals: a.traffic.totals(), Processes: a.traffic.state()}
			for _, f := range a.fleets {
				f.cut(now)
				live.Fleets = append(live.Fleets, f.state(false))
			}
			a.hub.publish("second", live)
		}
	}
}

// liveState is what is new after a second.
type liveState struct {
	Second    second         `json:"second"`
	Totals    totals         `json:"totals"`
	Processes []processState `json:"processes"`
	Fleets    []fleetState   `json:"fleets"`
}

// redisState is the server behind the page.
type redisState struct {
	What  string `json:"what"`
	Kind  string `json:"kind"`
	Fault fault  `json:"fault"`
	// WhyNoFlush is why its scripts are not flushed, if they are not.
	WhyNoFlush string `json:"whyNoFlush,omitempty"`
}

func (a *app) redisState() redisState {
	what := a.outage.srv.What
	if a.outage.foreign() {
		what = "the Redis of REDIS_URL at " + a.outage.srv.Options.Addr
	}
	return redisState{what, string(a.outage.srv.Kind), a.outage.fault(), a.outage.whyNoFlush()}
}

// wholeState is everything that the page shows.
type wholeState struct {
	Now        float64        `json:"now"` // Unix time in milliseconds
	Redis      redisState     `json:"redis"`
	Algorithms []algorithm    `json:"algorithms"`
	Cards      []cardState    `json:"cards"`
	Traffic    trafficState   `json:"traffic"`
	Processes  []processState `json:"processes"`
	Fleets     []fleetState   `json:"fleets"`
	Lines      []lineState    `json:"lines"`
	Quota      int            `json:"quota"`
	QuotaMs    float64        `json:"quotaMs"`
}

type trafficState struct {
	Rate     int      `json:"rate"`
	Burst    int      `json:"burst"`
	Offered  int      `json:"offered"`
	BudgetMs float64  `json:"budgetMs"`
	Totals   totals   `json:"totals"`
	Seconds  []second `json:"seconds"`
}

func (a *app) snapshot() wholeState {
	s := wholeState{
		Now: unixMs(time.Now()), Redis: a.redisState(), Algorithms: algorithms, Processes: a.traffic.state(),
		Traffic: trafficState{
			Rate: a.cfg.rate, Burst: a.cfg.burst, Offered: int(offered * float64(a.cfg.rate)),
			BudgetMs: ms(a.cfg.budget), Totals: a.traffic.totals(), Seconds: a.traffic.history(),
		},
		Quota: quota, QuotaMs: ms(quotaWindow),
	}
	for _, c := range a.cards {
		s.Cards = append(s.Cards, c.state())
	}
	for _, f := range a.fleets {
		s.Fleets = append(s.Fleets, f.state(true))
	}
	for _, l := range a.lines {
		s.Lines = append(s.Lines, l.state())
	}
	return s
}

// state is for those who don't listen to events.
func (a *app) state(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, a.snapshot())
	return nil
}

// reset removes what all counters have counted, or those of one card.
func (a *app) reset(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Algorithm *string `json:"algorithm"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	var err error
	if in.Algorithm == nil {
		err = a.resetAll(r.Context())
	} else {
		c, unknown := a.find(in.Algorithm)
		if unknown != nil {
			return unknown
		}
		err = c.reset(r.Context())
	}
	if err != nil && !errors.Is(err, limiter.ErrUnavailable) {
		return err
	}
	// Redis may still hold what the page has forgotten.
	writeJSON(w, map[string]any{"reset": true, "redis": err == nil})
	return nil
}

func (a *app) resetAll(ctx context.Context) error {
	errs := make([]error, len(a.cards))
	var wg sync.WaitGroup
	for i, c := range a.cards {
		wg.Go(func() { errs[i] = c.reset(ctx) })
	}
	wg.Wait()
	a.traffic.reset()
	for _, f := range a.fleets {
		f.reset()
	}
	if a.linesBusy.TryLock() {
		for _, l := range a.lines {
			l.reset()
		}
		a.linesBusy.Unlock()
	}
	a.hub.publish("state", a.snapshot())
	return errors.Join(errs...)
}

func (a *app) doOutage(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Action *string `json:"action"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if in.Action == nil {
		return badField("action", "missing", "must be one of kill, freeze, slow, flush-scripts, restore")
	}
	if err := a.outage.act(*in.Action); err != nil {
		return err
	}
	writeJSON(w, a.redisState())
	return nil
}

func (a *app) doFleet(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Shared  *bool `json:"shared"`
		Running *bool `json:"running"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if in.Running == nil {
		return badField("running", "missing", "must be true or false")
	}
	var all []fleetState
	for _, f := range a.fleets {
		if in.Shared == nil || f.shared == *in.Shared {
			f.set(a.ctx, *in.Running)
		}
		all = append(all, f.state(false))
	}
	a.hub.publish("fleets", all)
	writeJSON(w, map[string]any{"fleets": all})
	return nil
}
