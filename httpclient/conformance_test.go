package httpclient_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/internal/roundtrippertest"
	"github.com/holdfast-go/holdfast/limiter"
)

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

func newTransport(t testing.TB, base http.RoundTripper, opts ...httpclient.Option) *httpclient.Transport {
	t.Helper()
	tr, err := httpclient.New(base, append([]httpclient.Option{httpclient.WithLogger(discard)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func newLocal(t testing.TB, l limiter.Limit) *limiter.Limiter {
	t.Helper()
	lim, err := limiter.NewLocal(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lim.Close() })
	return lim
}

// TestConformance runs the suite for what an option changes in how requests and
// responses are handled.
func TestConformance(t *testing.T) {
	for name, options := range map[string]func(*testing.T) []httpclient.Option{
		"defaults": func(*testing.T) []httpclient.Option { return nil },
		"limiter": func(t *testing.T) []httpclient.Option {
			return []httpclient.Option{httpclient.WithLimiter(newLocal(t, limiter.TokenBucket(limiter.PerSecond(1e5), 1e5)))}
		},
		"attempt timeout": func(*testing.T) []httpclient.Option {
			return []httpclient.Option{httpclient.WithAttemptTimeout(time.Minute)}
		},
		"adaptive, no throttle, no key": func(*testing.T) []httpclient.Option {
			return []httpclient.Option{
				httpclient.WithAdaptive(), httpclient.WithoutThrottle(),
				httpclient.WithKey(func(*http.Request) string { return "" }),
			}
		},
		"hooks": func(*testing.T) []httpclient.Option {
			return []httpclient.Option{httpclient.WithHooks(httpclient.Hooks{
				Attempt:  func(context.Context, httpclient.AttemptInfo) {},
				Wait:     func(context.Context, httpclient.WaitInfo) {},
				Cooldown: func(context.Context, httpclient.CooldownInfo) {},
				GiveUp:   func(context.Context, httpclient.GiveUpInfo) {},
			})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			roundtrippertest.Run(t, func(t *testing.T, base http.RoundTripper) http.RoundTripper {
				return newTransport(t, base, options(t)...)
			})
		})
	}
}
