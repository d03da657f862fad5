package limiter_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/retry"
)

// TestWordsInJSONAndLogs: what is a number in memory is a word in JSON, also as the key of
// an object, and in both formats of slog.
func TestWordsInJSONAndLogs(t *testing.T) {
	for value, want := range map[any]string{
		limiter.SourceLease: "lease", limiter.Source(99): "unknown source 99",
		limiter.Limit{}.String(): "no limit",
		fallback.Closed:          "closed", breaker.HalfOpen: "half-open", breaker.ClassReadOnly: "read-only", breaker.ProofRun: "run",
		retry.Reason(0): "none", retry.Throttled: "throttled", retry.Rejected: "rejected", retry.WaitCooldown: "cooldown",
		retry.JitterEqual: "equal", retry.Provider(0): "none", retry.Shopify: "shopify", retry.ResetEpochMillis: "epoch-millis",
		middleware.MissingUnauthorized: "unauthorized",
	} {
		var text, object bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("m", "value", value)
		slog.New(slog.NewJSONHandler(&object, nil)).Info("m", "value", value)
		if !strings.Contains(text.String(), want) || !strings.Contains(object.String(), `"value":"`+want+`"`) {
			t.Errorf("%T: logged as %s%s, want %q", value, &text, &object, want)
		}
	}
	health := limiter.Health{Decisions: map[limiter.Source]uint64{limiter.SourceRedis: 7}}
	if got, err := json.Marshal(health); err != nil || !strings.Contains(string(got), `{"redis":7}`) {
		t.Errorf("%s, %v", got, err)
	}
}
