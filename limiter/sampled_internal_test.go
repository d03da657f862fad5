package limiter

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestSampledClosedComesBack: an outage that outlasts the interest in every key, after
// which nothing runs any more, does not outlast itself.
func TestSampledClosedComesBack(t *testing.T) {
	srv := redistest.Start(t)
	s, err := NewSampled(redistest.Client(t, srv), PerSecond(100), WithInterval(100*time.Millisecond),
		WithFallback(fallback.Closed), WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if err := srv.Freeze(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nobody is admitted", func() bool {
		_, err := s.Allow(t.Context(), "k")
		return errors.Is(err, ErrUnavailable)
	})
	eventually(t, "nothing runs any more", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.timer == nil && s.last.IsZero() && s.table.count.Load() == 0
	})
	if err := srv.Thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Redis is known again", func() bool {
		res, err := s.Allow(t.Context(), "k")
		return err == nil && res.Source == SourceSampled
	})
}
