package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/examples/internal/demotest"
	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis on every failed dial
	redistest.VerifyNoLeaks(m)
}

// served is the app behind a real server.
type served struct {
	*app
	t           *testing.T
	url, admin  string
	redisServer *redisproc.Server
}

func start(t *testing.T, trusted ...netip.Prefix) *served {
	t.Helper()
	srv := redistest.Start(t)
	a, err := newApp(redistest.Client(t, srv), "test", trusted)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	public, private := httptest.NewServer(a.public), httptest.NewServer(a.private)
	t.Cleanup(public.Close)
	t.Cleanup(private.Close)
	return &served{a, t, public.URL, private.URL, srv}
}

func (s *served) get(path, credential string, headers ...string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if credential != "" {
		req.Header.Set("Authorization", "Bearer "+credential)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return s.do(req)
}

func (s *served) do(req *http.Request) *http.Response {
	s.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp
}

func (s *served) private(path string) []byte {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", s.admin+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp := s.do(req)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 {
		s.t.Fatalf("%s: %s: %s", path, resp.Status, body)
	}
	return body
}

// metric is a counter's value, summed over the series that have the labels.
func (s *served) metric(name string, labels map[string]string) (sum float64) {
	s.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(s.private("/metrics")))
	if err != nil {
		s.t.Fatal(err)
	}
	f := families[name]
	if f == nil {
		s.t.Fatalf("there is no %s", name)
	}
next:
	for _, m := range f.Metric {
		has := map[string]string{}
		for _, l := range m.Label {
			has[l.GetName()] = l.GetValue()
		}
		for k, v := range labels {
			if has[k] != v {
				continue next
			}
		}
		sum += m.GetCounter().GetValue()
	}
	return sum
}

// admitted is how many of n consecutive requests were served.
func (s *served) admitted(n int, path, credential string) (ok int, last *http.Response) {
	for range n {
		if last = s.get(path, credential); last.StatusCode == 200 {
			ok++
		}
	}
	return ok, last
}

func TestPlans(t *testing.T) {
	s := start(t)
	if ok, last := s.admitted(15, "/v1/things", "free-key"); ok < 10 || ok > 12 || last.StatusCode != 429 || last.Header.Get("Retry-After") != "1" {
		t.Errorf("free: %d of 15, then %s after %s", ok, last.Status, last.Header.Get("Retry-After"))
	}
	if ok, _ := s.admitted(40, "/v1/things", "pro-key"); ok != 40 {
		t.Errorf("pro: %d of 40", ok)
	}
	if ok, _ := s.admitted(15, "/v1/things", "legacy-key"); ok < 10 || ok > 12 {
		t.Errorf("a plan that is not known: %d of 15, want what free has", ok)
	}
	resp := s.get("/v1/report", "enterprise-key")
	if limits := strings.Join(resp.Header.Values("RateLimit"), ", "); resp.StatusCode != 200 || !strings.Contains(limits, `"per-address";r=`) || !strings.Contains(limits, `"per-user";r=495;`) {
		t.Errorf("%s, RateLimit %q", resp.Status, limits)
	}
	if u := decode[user](t, resp.Body); u != (user{"carol", "enterprise"}) {
		t.Errorf("%+v", u)
	}
}

func decode[T any](t *testing.T, r io.Reader) (v T) {
	t.Helper()
	if err := json.NewDecoder(r).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAddresses: who tries credentials is stopped, and cannot get around it by a header
// that nobody trusted has set.
func TestAddresses(t *testing.T) {
	s := start(t)
	refused := 0
	for i := range 130 {
		resp := s.get("/v1/things", "guess", "X-Forwarded-For", "203.0.113."+string(rune('0'+i%10)))
		switch resp.StatusCode {
		case 401:
		case 429:
			refused++
		default:
			t.Fatal(resp.Status)
		}
	}
	if refused == 0 {
		t.Error("130 guesses, none refused")
	}
	if resp := s.get("/healthz", ""); resp.StatusCode != 204 || resp.Header.Get("RateLimit") != "" {
		t.Errorf("health: %s", resp.Status)
	}
	behind := start(t, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
	for i := range 130 {
		if resp := behind.get("/v1/things", "guess", "X-Forwarded-For", "203.0.113."+string(rune('0'+i%10))); resp.StatusCode != 401 {
			t.Fatalf("13 guesses of each of ten addresses: %s", resp.Status)
		}
	}
}

// TestWhatIsSaid: metrics for Prometheus, and who was refused most; also without Redis.
func TestWhatIsSaid(t *testing.T) {
	s := start(t)
	s.admitted(15, "/v1/things", "free-key")
	s.admitted(3, "/v1/things", "pro-key")
	perUser := map[string]string{"holdfast_policy": "per-user", "holdfast_source": "redis", "holdfast_outcome": "allowed"}
	if n := s.metric("holdfast_limiter_decisions_total", perUser); n < 13 || n > 15 {
		t.Errorf("%v decisions by Redis", n)
	}
	served := s.metric("holdfast_server_requests_total", map[string]string{"holdfast_policy": "per-user", "holdfast_outcome": "served"})
	refused := s.metric("holdfast_server_requests_total", map[string]string{"holdfast_policy": "per-user", "holdfast_outcome": "rejected", "http_response_status_code": "429"})
	if served+refused != 18 || refused < 3 {
		t.Errorf("%v served and %v refused, of 18", served, refused)
	}
	most := decode[struct {
		Limiters []struct {
			Name string
			Keys []struct {
				Key    string
				Denied float64
			}
		}
	}](t, bytes.NewReader(s.private("/debug/limits?n=5")))
	if l := most.Limiters; len(l) != 2 || l[0].Name != "per-address" || len(l[0].Keys) != 0 || l[1].Name != "per-user" || len(l[1].Keys) != 1 || l[1].Keys[0].Key != "alice" || l[1].Keys[0].Denied != refused {
		t.Errorf("%+v", most)
	}

	if err := s.redisServer.Kill(); err != nil {
		t.Fatal(err)
	}
	if ok, last := s.admitted(5, "/v1/things", "pro-key"); ok != 5 {
		t.Errorf("without Redis: %d of 5, %s", ok, last.Status)
	}
	perUser["holdfast_source"] = "local"
	if n := s.metric("holdfast_limiter_decisions_total", perUser); n != 5 {
		t.Errorf("%v decisions in the process", n)
	}
}

// lines is what a program prints, for a test to wait for.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
	at  chan struct{} // closed at the first /metrics
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.buf.Write(p)
	if bytes.Contains(l.buf.Bytes(), []byte("grep ^holdfast")) {
		select {
		case <-l.at:
		default:
			close(l.at)
		}
	}
	return n, err
}

// TestRun: the program as it is started, by the addresses that it prints, until it is
// told to stop.
func TestRun(t *testing.T) {
	redistest.Require(t)
	t.Setenv("REDIS_URL", "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &lines{at: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, config{addr: "127.0.0.1:0", admin: "127.0.0.1:0", prefix: "run", trusted: "10.0.0.0/8, fd00::/8"}, out)
	}()
	select {
	case <-out.at:
	case err := <-done:
		t.Fatal(err)
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is printed")
	}
	out.mu.Lock()
	text := out.buf.String()
	out.mu.Unlock()
	urls := regexp.MustCompile(`(?m)^(?:The API|Metrics): +(http://\S+)$`).FindAllStringSubmatch(text, -1)
	if len(urls) != 2 {
		t.Fatalf("printed:\n%s", text)
	}
	s := &served{t: t, url: urls[0][1]}
	if resp := s.get("/v1/things", "pro-key"); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	s.admin = strings.TrimSuffix(urls[1][1], "/metrics")
	if !bytes.Contains(s.private("/metrics"), []byte("holdfast_limiter_decisions_total")) {
		t.Error("no metrics")
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("stopped: %v", err)
	}
}

func TestBadFlags(t *testing.T) {
	good := config{addr: "127.0.0.1:0", admin: "127.0.0.1:0", prefix: "bad"}
	demotest.BadFlags(t, run, good,
		func(c *config) { c.trusted = "10.0.0.1" },
		func(c *config) { c.addr = "256.0.0.1:http" },
		func(c *config) { c.admin = "nowhere" },
		func(c *config) { c.prefix = "a b" },
	)
}

// TestPortTaken: it says so, and nothing is left behind.
func TestPortTaken(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	taken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(taken.Close)
	err := run(t.Context(), config{addr: taken.Listener.Addr().String(), admin: "127.0.0.1:0", prefix: "taken"}, io.Discard)
	if err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("%v", err)
	}
}
