package middleware_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

// keyOf is the key that a request is decided by; "" when it has none.
func keyOf(t testing.TB, key middleware.Key, r func(*http.Request)) (got string) {
	t.Helper()
	h := wrap(t, local(t, limiter.GCRA(limiter.PerHour(1_000_000), 1_000_000)), key, middleware.WithHook(func(_ context.Context, d middleware.Decision) { got = d.Key }))
	get(h, r)
	return got
}

// TestKeys: what each of them makes of a request.
func TestKeys(t *testing.T) {
	from := func(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }
	both := func(fs ...func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) {
			for _, f := range fs {
				f(r)
			}
		}
	}
	for name, c := range map[string]struct {
		key  middleware.Key
		r    func(*http.Request)
		want string
	}{
		"everyone":         {middleware.Everyone(), from("x"), "everyone"},
		"header":           {middleware.Header("x-user"), with("X-User", "42"), "42"},
		"no header":        {middleware.Header("x-user"), with("X-Other", "42"), ""},
		"basic auth":       {middleware.BasicAuthUser(), func(r *http.Request) { r.SetBasicAuth("alice", "secret") }, "alice"},
		"no basic auth":    {middleware.BasicAuthUser(), with("Authorization", "Basic !"), ""},
		"path value":       {middleware.PathValue("id"), func(r *http.Request) { r.SetPathValue("id", "7") }, "7"},
		"no path value":    {middleware.PathValue("id"), from("1.2.3.4:5"), ""},
		"IPv4":             {middleware.RemoteIP(), from("192.0.2.1:1234"), "192.0.2.1"},
		"IPv4 in IPv6":     {middleware.RemoteIP(), from("[::ffff:192.0.2.1]:1234"), "192.0.2.1"},
		"IPv6 by /64":      {middleware.RemoteIP(), from("[2001:db8:1:2:3:4:5:6]:1234"), "2001:db8:1:2::/64"},
		"IPv6 with a zone": {middleware.RemoteIP(), from("[fe80::1%eth0]:1"), "fe80::/64"},
		"no address":       {middleware.RemoteIP(), from("@"), ""},
		"no port":          {middleware.RemoteIP(), from("192.0.2.1"), "192.0.2.1"},
		"bearer":           {middleware.APIKey(), with("Authorization", "bearer abc"), "key:ba7816bf8f01cfea414140de5dae2223"},
		"api key":          {middleware.APIKey(), with("X-API-Key", "abc"), "key:ba7816bf8f01cfea414140de5dae2223"},
		"basic is none":    {middleware.APIKey(), with("Authorization", "Basic abc"), ""},
		"joined":           {middleware.Join(middleware.Header("A"), middleware.Header("B")), both(with("A", "1:2"), with("B", "3")), "3:1:21:3"},
		"half of a pair":   {middleware.Join(middleware.Header("A"), middleware.Header("B")), with("A", "1"), ""},
		"long":             {middleware.Header("A"), with("A", strings.Repeat("x", 1<<20)), "sha256:"},
	} {
		if got := keyOf(t, c.key, c.r); got != c.want && (c.want != "sha256:" || !strings.HasPrefix(got, c.want) || len(got) != 71) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestJoinIsInjective: no two lists of parts are one key.
func TestJoinIsInjective(t *testing.T) {
	key := middleware.Join(middleware.Header("A"), middleware.Header("B"))
	seen := map[string][2]string{}
	long := strings.Repeat("y", 200)
	hash := keyOf(t, middleware.Header("A"), with("A", long)) // somebody else's
	values := []string{"1", "11", "1:1", ":1", "2:11", "1:12:", long, strings.Repeat("y", 201), hash}
	if got := keyOf(t, middleware.Header("A"), with("A", hash)); got == hash {
		t.Error("a caller who names another's hash has its key")
	}
	for _, a := range values {
		for _, b := range values {
			k := keyOf(t, key, func(r *http.Request) { r.Header.Set("A", a); r.Header.Set("B", b) })
			if other, dup := seen[k]; dup {
				t.Errorf("%q, %q and %q are all %q", a, b, other, k)
			}
			seen[k] = [2]string{a, b}
		}
	}
}

var proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

// TestForwarded: only what trusted proxies say counts, from the right; what a client
// makes up neither frees it nor harms another.
func TestForwarded(t *testing.T) {
	for name, c := range map[string]struct {
		from string
		xff  []string // header lines
		want string
	}{
		"no proxy, no header":               {"198.51.100.9:1", nil, "198.51.100.9"},
		"no proxy, invented":                {"198.51.100.9:1", []string{"1.2.3.4"}, "198.51.100.9"},
		"a proxy":                           {"10.0.0.1:1", []string{"203.0.113.7"}, "203.0.113.7"},
		"a proxy, and the client invented":  {"10.0.0.1:1", []string{"1.2.3.4, 203.0.113.7"}, "203.0.113.7"},
		"in a line of its own":              {"10.0.0.1:1", []string{"1.2.3.4", "203.0.113.7"}, "203.0.113.7"},
		"two proxies":                       {"10.0.0.1:1", []string{"1.2.3.4, 203.0.113.7, 10.9.9.9"}, "203.0.113.7"},
		"an invented proxy":                 {"10.0.0.1:1", []string{"1.2.3.4, 10.1.1.1, 203.0.113.7"}, "203.0.113.7"},
		"only proxies":                      {"10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		"no header":                         {"10.0.0.1:1", nil, "10.0.0.1"},
		"garbage":                           {"10.0.0.1:1", []string{"203.0.113.7, what?"}, "10.0.0.1"},
		"garbage behind a proxy":            {"10.0.0.1:1", []string{"203.0.113.7, nonsense, 10.0.0.2"}, "10.0.0.2"},
		"empty":                             {"10.0.0.1:1", []string{""}, "10.0.0.1"},
		"commas":                            {"10.0.0.1:1", []string{",,,"}, "10.0.0.1"},
		"spaces and a port":                 {"10.0.0.1:1", []string{"  203.0.113.7:99 "}, "203.0.113.7"},
		"IPv6":                              {"[fd00::1]:1", []string{"2001:db8::7"}, "2001:db8::/64"},
		"IPv6 in brackets with a port":      {"[fd00::1]:1", []string{"[2001:db8::7]:99"}, "2001:db8::/64"},
		"a proxy as IPv4 in IPv6":           {"[::ffff:10.0.0.1]:1", []string{"203.0.113.7, ::ffff:10.0.0.2"}, "203.0.113.7"},
		"more hops than there are":          {"10.0.0.1:1", []string{"203.0.113.7" + strings.Repeat(", 10.0.0.2", 40)}, "10.0.0.2"},
		"lines, the last of proxies":        {"10.0.0.1:1", []string{"1.2.3.4, 203.0.113.7", "10.0.0.3, 10.0.0.2"}, "203.0.113.7"},
		"lines, the last is garbage":        {"10.0.0.1:1", []string{"203.0.113.7", "what?"}, "10.0.0.1"},
		"lines, garbage behind a proxy":     {"10.0.0.1:1", []string{"203.0.113.7", "nonsense, 10.0.0.2"}, "10.0.0.2"},
		"IPv6 in brackets without a port":   {"[fd00::1]:1", []string{"[2001:db8::7]"}, "2001:db8::/64"},
		"brackets without IPv6":             {"[fd00::1]:1", []string{"[203.0.113.7"}, "fd00::/64"},
		"as many hops as are believed":      {"10.0.0.1:1", []string{"203.0.113.7" + strings.Repeat(", 10.0.0.2", 31)}, "203.0.113.7"},
		"one more":                          {"10.0.0.1:1", []string{"203.0.113.7" + strings.Repeat(", 10.0.0.2", 32)}, "10.0.0.2"},
		"a client's 16 kB, then a proxy":    {"10.0.0.1:1", []string{strings.Repeat("1.2.3.4, ", 1<<11) + "203.0.113.7"}, "203.0.113.7"},
		"8 kB of one hop":                   {"10.0.0.1:1", []string{"5.6.7.8", "1" + strings.Repeat(" ", 1<<13) + "1.2.3.4, 10.0.0.2"}, "10.0.0.2"},
		"lines, the last with an empty hop": {"10.0.0.1:1", []string{"1.2.3.4", ", 10.0.0.2"}, "10.0.0.2"},
		"a megabyte":                        {"10.0.0.1:1", []string{strings.Repeat("1.2.3.4, ", 1<<17)}, "10.0.0.1"},
		"no connection":                     {"", []string{"1.2.3.4"}, ""},
	} {
		set := func(header string, line func(string) string) func(*http.Request) {
			return func(r *http.Request) {
				r.RemoteAddr = c.from
				for _, l := range c.xff {
					r.Header.Add(header, line(l))
				}
			}
		}
		if got := keyOf(t, middleware.XForwardedFor(proxies...), set("X-Forwarded-For", func(s string) string { return s })); got != c.want {
			t.Errorf("X-Forwarded-For, %s: %q, want %q", name, got, c.want)
		}
		// The same hops in the other header, and the header that is not asked is not read.
		quoted := func(s string) string {
			hops := strings.Split(s, ",")
			for i, h := range hops {
				hops[i] = ` for="` + strings.TrimSpace(h) + `";proto=http`
			}
			return strings.Join(hops, ",")
		}
		if got := keyOf(t, middleware.Forwarded(proxies...), set("Forwarded", quoted)); got != c.want {
			t.Errorf("Forwarded, %s: %q, want %q", name, got, c.want)
		}
		if got := keyOf(t, middleware.Forwarded(proxies...), set("X-Forwarded-For", func(s string) string { return s })); c.from == "10.0.0.1:1" && got != "10.0.0.1" {
			t.Errorf("%s: the other header was read: %q", name, got)
		}
	}
}

// TestForwardedSyntax: what RFC 7239 allows, and what it does not.
func TestForwardedSyntax(t *testing.T) {
	for line, want := range map[string]string{
		`for=203.0.113.7`:                                     "203.0.113.7",
		`For="[2001:db8::7]:4711"`:                            "2001:db8::/64",
		`for=203.0.113.7;proto=http;by=10.0.0.1`:              "203.0.113.7",
		`proto=http; FOR=203.0.113.7`:                         "203.0.113.7",
		`for=1.2.3.4, for=203.0.113.7`:                        "203.0.113.7",
		`for=1.2.3.4;host="a,for=9.9.9.9", for=203.0.113.7`:   "203.0.113.7",
		`for=203.0.113.7;host="for=9.9.9.9, for=\"8.8.8.8\""`: "203.0.113.7",
		`for=unknown`:                 "10.0.0.1",
		`for=_hidden, for=10.0.0.2`:   "10.0.0.2",
		`proto=http`:                  "10.0.0.1",
		`for="203.0.113.7`:            "10.0.0.1",
		`for=203.0.113.7;for=9.9.9.9`: "10.0.0.1",
		// Empty elements and empty pairs say nothing.
		`for=1.2.3.4, , for=203.0.113.7`:     "203.0.113.7",
		`for=203.0.113.7, ,	,for=10.0.0.2,,`: "203.0.113.7",
		`,`:                                  "10.0.0.1",
		`for=203.0.113.7;`:                   "203.0.113.7",
		`;;for=203.0.113.7;;proto=x`:         "203.0.113.7",
		`for=203.0.113.7, ;`:                 "10.0.0.1", // not empty: it is about a hop, and does not say which
		// What is malformed to the left of what a proxy wrote is the client's.
		`for="1.2.3.4, for=203.0.113.7`:                  "203.0.113.7",
		`for="\", for="[2001:db8::7]:1"`:                 "2001:db8::/64",
		`for=6.6.6.6;host="a, for=10.0.0.2`:              "10.0.0.2",
		`for=6.6.6.6 what, for=10.0.0.2`:                 "10.0.0.2",
		`for=6.6.6.6, for=5.5.5.5;host=a", for=10.0.0.2`: "10.0.0.2",
		`for=203.0.113.7;host="\\", for=10.0.0.2`:        "203.0.113.7",
		`for=203.0.113.7;host="\\\", for=10.0.0.2`:       "10.0.0.2",
		`for=203.0.113.7;host="a,b"`:                     "203.0.113.7",
		`for=203.0.113.7;host="a, b\""`:                  "203.0.113.7",
		`for=203.0.113.7;host=a"`:                        "10.0.0.1",
		`for="203.0.113.7"x`:                             "10.0.0.1",
		`for=`:                                           "10.0.0.1",
		`for="", for=10.0.0.2`:                           "10.0.0.2",
		`for`:                                            "10.0.0.1",
		`=1.2.3.4`:                                       "10.0.0.1",
		`for="";for=9.9.9.9`:                             "10.0.0.1",
		`for=1.2.3.4 for=5.6.7.8`:                        "10.0.0.1",
		`for=1.2.3.4;what`:                               "10.0.0.1",
		`for=1.2.3.4;what?=5`:                            "10.0.0.1",
		`for=1.2.3.4;, for=10.0.0.2`:                     "1.2.3.4",
		`for=1.2.3.4;what, for=10.0.0.2`:                 "10.0.0.2",
	} {
		got := keyOf(t, middleware.Forwarded(proxies...), func(r *http.Request) {
			r.RemoteAddr = "10.0.0.1:1"
			r.Header.Set("Forwarded", line)
		})
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// TestMappedPrefixes: a prefix of IPv4 may be written as one of IPv6.
func TestMappedPrefixes(t *testing.T) {
	key := middleware.XForwardedFor(netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104))
	for from, want := range map[string]string{"10.0.0.1:1": "203.0.113.7", "[::ffff:10.0.0.1]:1": "203.0.113.7", "11.0.0.1:1": "11.0.0.1"} {
		if got := keyOf(t, key, func(r *http.Request) { r.RemoteAddr = from; r.Header.Set("X-Forwarded-For", "203.0.113.7") }); got != want {
			t.Errorf("from %s: %q, want %q", from, got, want)
		}
	}
}

// TestUnixSocket: a connection without an address is a proxy's only if that is said. Over
// a real socket, as nginx would use it.
func TestUnixSocket(t *testing.T) {
	for name, c := range map[string]struct {
		proxies middleware.Proxies
		hops    string
		want    string
	}{
		"not trusted":            {middleware.Proxies{Trusted: proxies}, "203.0.113.7", ""},
		"trusted":                {middleware.Proxies{UnixSocket: true}, "1.2.3.4, 203.0.113.7", "203.0.113.7"},
		"trusted, and proxies":   {middleware.Proxies{Trusted: proxies, UnixSocket: true}, "203.0.113.7, 10.0.0.2", "203.0.113.7"},
		"trusted, but no header": {middleware.Proxies{UnixSocket: true}, "", ""},
		"trusted, but garbage":   {middleware.Proxies{UnixSocket: true}, "203.0.113.7, unix:", ""},
	} {
		for header, key := range map[string]middleware.Key{"X-Forwarded-For": c.proxies.XForwardedFor(), "Forwarded": c.proxies.Forwarded()} {
			var got string
			h := wrap(t, local(t, limiter.GCRA(limiter.PerHour(1000), 1000)), key, middleware.WithHook(func(_ context.Context, d middleware.Decision) { got = d.Key }))
			socket := filepath.Join(t.TempDir(), "s")
			lis, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewUnstartedServer(h)
			srv.Listener.Close()
			srv.Listener = lis
			srv.Start()
			tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			}}
			r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://app.test/", nil)
			if c.hops != "" {
				r.Header.Set(header, c.hops)
			}
			if header == "Forwarded" && c.hops != "" {
				r.Header.Set(header, "for="+strings.ReplaceAll(c.hops, ", ", ", for="))
			}
			resp, err := tr.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got != c.want || (resp.StatusCode == 400) != (c.want == "") {
				t.Errorf("%s, %s: %d, key %q, want %q", name, header, resp.StatusCode, got, c.want)
			}
			tr.CloseIdleConnections()
			srv.Close()
		}
	}
}

// FuzzForwarded: whatever the headers say, a client that is no proxy has its own
// address, and the key of one behind a proxy is an address or none; what a proxy adds to
// it, in the same line or another, counts. Never a panic.
func FuzzForwarded(f *testing.F) {
	f.Add("1.2.3.4, 10.0.0.1", `for=1.2.3.4, for="[::1]:2"`)
	f.Add(`for="`, `for="\`)
	f.Add(",", ";=,")
	f.Add("", `for=1.2.3.4;host="`)
	f.Add("", `for=1.2.3.4;host=", for="\\"`)
	x, fwd := middleware.XForwardedFor(proxies...), middleware.Forwarded(proxies...)
	f.Fuzz(func(t *testing.T, xff, forwarded string) {
		of := func(key middleware.Key, from string, xff, forwarded []string) string {
			return keyOf(t, key, func(r *http.Request) {
				r.RemoteAddr = from
				r.Header["X-Forwarded-For"], r.Header["Forwarded"] = xff, forwarded
			})
		}
		for i, key := range []middleware.Key{x, fwd} {
			for _, from := range []string{"198.51.100.9:1", "10.0.0.1:1"} {
				got := of(key, from, []string{xff}, []string{forwarded})
				_, notAddr := netip.ParseAddr(got)
				_, notPrefix := netip.ParsePrefix(got)
				if from[0] == '1' && from[1] == '9' && got != "198.51.100.9" || notAddr != nil && notPrefix != nil {
					t.Fatalf("%d from %s, %q and %q: %q", i, from, xff, forwarded, got)
				}
			}
			for said, want := range map[string]string{"203.0.113.7": "203.0.113.7", "[2001:db8::7]:4711": "2001:db8::/64"} {
				element := `for="` + said + `";proto=http`
				if got := of(key, "10.0.0.1:1", []string{xff + ", " + said}, []string{forwarded + ", " + element}); got != want {
					t.Errorf("%d: a proxy added %s to %q or %q: %q", i, said, xff, forwarded, got)
				}
				if got := of(key, "10.0.0.1:1", []string{xff, said + ", 10.0.0.2"}, []string{forwarded, element + ", for=10.0.0.2"}); got != want {
					t.Errorf("%d: a proxy added a line with %s to %q or %q: %q", i, said, xff, forwarded, got)
				}
			}
		}
	})
}
