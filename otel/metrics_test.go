package holdfastotel_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
	holdfastotel "github.com/holdfast-go/holdfast/otel"
	"github.com/holdfast-go/holdfast/retry"
	"github.com/holdfast-go/holdfast/sampled"
	"github.com/holdfast-go/holdfast/semaphore"
)

// scrape is a program's /metrics.
type scrape struct {
	t   *testing.T
	url string
	in  *holdfastotel.Instrumentation
}

// observed returns an Instrumentation whose metrics Prometheus may fetch.
func observed(t *testing.T) *scrape {
	t.Helper()
	reg := prometheus.NewRegistry()
	exp, err := exporter.New(exporter.WithRegisterer(reg))
	must(t, err)
	provider := metric.NewMeterProvider(metric.WithReader(exp))
	t.Cleanup(func() { must(t, provider.Shutdown(context.Background())) })
	in, err := holdfastotel.New(holdfastotel.WithMeterProvider(provider))
	must(t, err)
	srv := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	t.Cleanup(srv.Close)
	return &scrape{t, srv.URL, in}
}

// observe reports a limiter's state until the test ends, or stop is called.
func (s *scrape) observe(name string, lim holdfastotel.Healthy) (stop func()) {
	s.t.Helper()
	stop, err := s.in.Observe(name, lim)
	must(s.t, err)
	s.t.Cleanup(stop)
	return stop
}

func (s *scrape) text() []byte {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(s.url)
	must(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(s.t, err)
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s", resp.Status, text)
	}
	return text
}

// series returns what is scraped as "name{labels} = value", without what is of no
// interest: histograms by their count.
func (s *scrape) series() map[string]float64 {
	s.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(s.text()))
	must(s.t, err)
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				if !strings.HasPrefix(l.GetName(), "otel_scope") {
					labels = append(labels, strings.TrimPrefix(l.GetName(), "holdfast_")+"="+l.GetValue())
				}
			}
			slices.Sort(labels)
			series := strings.TrimPrefix(name, "holdfast_") + "{" + strings.Join(labels, ",") + "}"
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				out[series] = float64(m.GetHistogram().GetSampleCount())
			case dto.MetricType_COUNTER:
				out[series] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				out[series] = m.GetGauge().GetValue()
			default:
				s.t.Errorf("%s is a %v", name, f.GetType())
			}
		}
	}
	return out
}

func (s *scrape) expect(want map[string]float64) {
	s.t.Helper()
	got := s.series()
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			s.t.Errorf("%s is %v (there: %v), want %v; of\n%v", name, v, ok, value, got)
		}
	}
}

func quiet() limiter.RedisOption { return limiter.WithLogger(slog.New(slog.DiscardHandler)) }

func patient() limiter.RedisOption { return limiter.WithBudget(5 * time.Second) }

// TestPrometheusSeesALimiter: real text, fetched over HTTP and parsed by Prometheus' own
// parser, of decisions by Redis, by the cache and by the fallback.
func TestPrometheusSeesALimiter(t *testing.T) {
	srv := redistest.Start(t)
	s := observed(t)
	lim, err := limiter.New(redistest.Client(t, srv), limiter.FixedWindow(limiter.Per(2, 300*time.Hour)), quiet(), patient(), limiter.WithShare(1), limiter.WithPrefix("shop"), s.in.Limiter("per-customer"))
	must(t, err)
	t.Cleanup(func() { _ = lim.Close() })
	stop := s.observe("per-customer", lim)
	ctx := t.Context()
	for range 4 {
		_, err := lim.Allow(ctx, "somebody@example.com")
		must(t, err)
	}
	if _, err := lim.AllowN(ctx, "somebody@example.com", 9); err == nil {
		t.Fatal("a cost above the limit was no error")
	}
	s.expect(map[string]float64{
		"limiter_decisions_total{outcome=allowed,policy=per-customer,source=redis}":                2,
		"limiter_decisions_total{outcome=denied,policy=per-customer,source=redis}":                 1,
		"limiter_decisions_total{outcome=denied,policy=per-customer,source=cache}":                 1,
		"limiter_decisions_total{error_type=cost_exceeds_limit,outcome=error,policy=per-customer}": 1,
		"limiter_decision_duration_seconds{outcome=allowed,policy=per-customer,source=redis}":      2,
		"redis_call_duration_seconds{policy=per-customer,server=shop}":                             3,
		"breaker_state{breaker_state=closed,policy=per-customer,server=shop}":                      1,
		"breaker_state{breaker_state=open,policy=per-customer,server=shop}":                        0,
		"limiter_share_ratio{policy=per-customer,share_origin=fixed}":                              1,
		"limiter_processes{policy=per-customer}":                                                   1,
		"fallback_owed{policy=per-customer}":                                                       0,
		"fallback_reconciled_total{policy=per-customer}":                                           0,
		"redis_overloaded_total{policy=per-customer,server=shop}":                                  0,
	})
	if text := string(s.text()); strings.Contains(text, "somebody") {
		t.Errorf("a key in\n%s", text)
	}
	stop()
	stop()
	if _, there := s.series()["limiter_share_ratio{policy=per-customer,share_origin=fixed}"]; there {
		t.Error("a limiter that is not observed any more still reports its share")
	}
}

// overloaded is a limiter of whose server too much is asked.
type overloaded struct{}

func (overloaded) Health() limiter.Health {
	return limiter.Health{Servers: []limiter.ServerHealth{{Name: "shop", Overloaded: 7}}}
}

// TestPrometheusSeesOverload: calls that found no turn are counted by server.
func TestPrometheusSeesOverload(t *testing.T) {
	s := observed(t)
	s.observe("p", overloaded{})
	s.expect(map[string]float64{"redis_overloaded_total{policy=p,server=shop}": 7})
}

// TestPrometheusSeesAnOutage: the breaker, the fallback, and what was settled later.
func TestPrometheusSeesAnOutage(t *testing.T) {
	srv := redistest.Start(t)
	s := observed(t)
	lim, err := limiter.New(redistest.Admin(t, srv), limiter.FixedWindow(limiter.Per(1_000_000, 300*time.Hour)), quiet(), limiter.WithPrefix("shop"), s.in.Limiter("p"),
		limiter.WithBreaker(breaker.Settings{OpenMin: 20 * time.Millisecond, OpenMax: 20 * time.Millisecond}))
	must(t, err)
	t.Cleanup(func() { _ = lim.Close() })
	s.observe("p", lim)
	must(t, srv.Kill())
	decide := func() limiter.Source {
		t.Helper()
		res, err := lim.Allow(t.Context(), "k")
		must(t, err)
		return res.Source
	}
	for lim.Health().Owed == 0 || lim.Health().Servers[0].State == breaker.Closed {
		decide()
	}
	got := s.series()
	if got["limiter_decisions_total{outcome=allowed,policy=p,source=local}"] < 10 ||
		got["breaker_transitions_total{breaker_state=open,cause=unavailable,policy=p,server=shop}"]+got["breaker_transitions_total{breaker_state=open,cause=slow,policy=p,server=shop}"] < 1 ||
		got["redis_call_duration_seconds{error_type=unavailable,policy=p,server=shop}"]+got["redis_call_duration_seconds{error_type=slow,policy=p,server=shop}"] < 10 ||
		got["fallback_owed{policy=p}"] != 1 || got["fallback_keys{policy=p}"] != 1 ||
		got["breaker_state{breaker_state=closed,policy=p,server=shop}"] != 0 {
		t.Errorf("in the outage: %v", got)
	}
	must(t, srv.Restart())
	deadline := time.Now().Add(20 * time.Second)
	for lim.Health().Reconciled == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", lim.Health())
		}
		decide()
	}
	got = s.series()
	if got["fallback_reconciled_total{policy=p}"] != 1 || got["breaker_state{breaker_state=closed,policy=p,server=shop}"] != 1 ||
		got["breaker_transitions_total{breaker_state=closed,policy=p,server=shop}"] < 1 {
		t.Errorf("after the outage: %v", got)
	}
	// Refused for want of Redis.
	must(t, srv.Kill())
	closed, err := limiter.New(redistest.Admin(t, srv), limiter.GCRA(limiter.PerSecond(1), 1), quiet(), limiter.WithPrefix("closed"), limiter.WithFallback(fallback.Closed), s.in.Limiter("closed"))
	must(t, err)
	t.Cleanup(func() { _ = closed.Close() })
	if _, err := closed.Allow(t.Context(), "k"); err == nil {
		t.Fatal("no error")
	}
	s.expect(map[string]float64{"limiter_decisions_total{error_type=unavailable,outcome=error,policy=closed}": 1})
}

// TestPrometheusSeesAllLimiters: each kind by the same option.
func TestPrometheusSeesAllLimiters(t *testing.T) {
	rdb := redistest.Client(t, redistest.Start(t))
	s := observed(t)
	ctx := t.Context()
	of := func(name string, n int) *limiter.Limiter {
		lim, err := limiter.New(rdb, limiter.FixedWindow(limiter.Per(n, 300*time.Hour)), quiet(), limiter.WithExpectedProcesses(1), patient(), limiter.WithPrefix(name), s.in.Limiter(name))
		must(t, err)
		t.Cleanup(func() { _ = lim.Close() })
		return lim
	}
	multi, err := limiter.NewMulti(limiter.Part{Name: "all", Limiter: of("all", 5)}, limiter.Part{Name: "user", Limiter: of("user", 1)})
	must(t, err)
	local, err := limiter.NewLocal(limiter.GCRA(limiter.PerHour(1), 1), s.in.Limiter(""))
	must(t, err)
	sem, err := semaphore.New(rdb, 1, quiet(), limiter.WithExpectedProcesses(1), patient(), limiter.WithPrefix("sem"), s.in.Limiter("sem"))
	must(t, err)
	t.Cleanup(func() { _ = sem.Close() })
	s.observe("sem", sem)
	sampled, err := sampled.New(rdb, limiter.PerSecond(100), quiet(), limiter.WithExpectedProcesses(1), limiter.WithPrefix("sampled"), s.in.Limiter("sampled"))
	must(t, err)
	t.Cleanup(func() { _ = sampled.Close() })
	s.observe("sampled", sampled)
	for range 2 {
		_, err := multi.Allow(ctx, "k")
		must(t, err)
		_, err = local.Allow(ctx, "k")
		must(t, err)
		_, err = sem.TryAcquire(ctx, "k")
		must(t, err)
	}
	_, err = sampled.Allow(ctx, "k")
	must(t, err)
	s.expect(map[string]float64{
		"limiter_decisions_total{outcome=allowed,policy=all,source=redis}":     1,
		"limiter_decisions_total{outcome=not_charged,policy=all,source=redis}": 1,
		"limiter_decisions_total{outcome=allowed,policy=user,source=redis}":    1,
		"limiter_decisions_total{outcome=denied,policy=user,source=redis}":     1,
		"limiter_decisions_total{outcome=allowed,policy=default,source=local}": 1,
		"limiter_decisions_total{outcome=denied,policy=default,source=local}":  1,
		"limiter_decisions_total{outcome=allowed,policy=sem,source=redis}":     1,
		"limiter_decisions_total{outcome=denied,policy=sem,source=redis}":      1,
		"limiter_decisions_total{outcome=allowed,policy=sampled,source=local}": 1,
		"limiter_processes{policy=sampled}":                                    1,
		"limiter_processes{policy=sem}":                                        1,
	})
}

// TestPrometheusSeesHTTP: our client against our middleware.
func TestPrometheusSeesHTTP(t *testing.T) {
	s := observed(t)
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(1, 300*time.Hour)))
	must(t, err)
	limit, err := middleware.New(lim, middleware.Header("X-User"), middleware.WithPolicy("requests"), s.in.Middleware("api"))
	must(t, err)
	srv := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})))
	t.Cleanup(srv.Close)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	rt, err := httpclient.New(base, s.in.Client("payments"), httpclient.WithLogger(slog.New(slog.DiscardHandler)), httpclient.WithMaxWait(time.Second), httpclient.WithCooldownErrors())
	must(t, err)
	send := func(method, user string) error {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL, nil)
		must(t, err)
		if user != "" {
			req.Header.Set("X-User", user)
		}
		resp, err := rt.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	must(t, send("GET", ""))
	must(t, send("BREW", "alice@example.com")) // takes what there is, and says that nothing is left
	if err := send("GET", "alice@example.com"); err == nil {
		t.Error("the client did not heed RateLimit")
	}
	// Somebody else's client does not.
	req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL, nil)
	must(t, err)
	req.Header.Set("X-User", "alice@example.com")
	resp, err := base.RoundTrip(req)
	must(t, err)
	resp.Body.Close()
	s.expect(map[string]float64{
		"server_requests_total{http_response_status_code=400,outcome=rejected,policy=api}":                                      1,
		"server_requests_total{outcome=served,policy=api}":                                                                      1,
		"server_requests_total{denied_by=requests,http_response_status_code=429,outcome=rejected,policy=api}":                   1,
		"client_attempt_duration_seconds{error_type=400,http_request_method=GET,http_response_status_code=400,policy=payments}": 1,
		"client_attempt_duration_seconds{http_request_method=_OTHER,http_response_status_code=200,policy=payments}":             1,
		"client_cooldowns_total{policy=payments}":                                                                               1,
		"client_give_ups_total{policy=payments,reason=cooling_down}":                                                            1,
	})
	if text := string(s.text()); strings.Contains(text, "alice") {
		t.Errorf("a key in\n%s", text)
	}
}

// TestPrometheusSeesAFailingHost: with waits, errors and transitions of the client.
func TestPrometheusSeesAFailingHost(t *testing.T) {
	s := observed(t)
	n := 0
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		if n++; n == 1 {
			return &http.Response{StatusCode: 503, Header: http.Header{"Retry-After-Ms": {"5"}}, Body: http.NoBody}, nil
		}
		return nil, io.ErrUnexpectedEOF
	})
	rt, err := httpclient.New(base, s.in.Client("payments"), httpclient.WithLogger(slog.New(slog.DiscardHandler)), httpclient.WithAttempts(2), httpclient.WithThrottle(retry.ThrottleSettings{MinRequests: 2, Rand: func() float64 { return 0 }}))
	must(t, err)
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://api.test/", nil)
		must(t, err)
		if resp, err := rt.RoundTrip(req); err == nil {
			resp.Body.Close()
			t.Error(resp.Status)
		}
	}
	s.expect(map[string]float64{
		"client_attempt_duration_seconds{error_type=503,http_request_method=GET,http_response_status_code=503,policy=payments}": 1,
		"client_attempt_duration_seconds{error_type=*errors.errorString,http_request_method=GET,policy=payments}":               1,
		"client_wait_duration_seconds{policy=payments,reason=server}":                                                           1,
		"client_give_ups_total{policy=payments,reason=attempts_spent}":                                                          1,
		"client_give_ups_total{policy=payments,reason=host_failing}":                                                            1,
		"client_throttle_transitions_total{policy=payments,throttling=true}":                                                    1,
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPrometheusLinterAccepts: Prometheus' own linter.
func TestPrometheusLinterAccepts(t *testing.T) {
	s := observed(t)
	lim, err := limiter.New(redistest.Client(t, redistest.Start(t)), limiter.GCRA(limiter.PerSecond(1), 1), quiet(), s.in.Limiter("p"))
	must(t, err)
	t.Cleanup(func() { _ = lim.Close() })
	s.observe("p", lim)
	_, err = lim.Allow(t.Context(), "k")
	must(t, err)
	problems, err := promlint.New(bytes.NewReader(s.text())).Lint()
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
