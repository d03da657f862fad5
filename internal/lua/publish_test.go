package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestPublishedByTheirOwnTimes: a process that publishes often neither removes what others publish rarely,
// nor lets it expire, and is removed itself when its own time is over.
func TestPublishedByTheirOwnTimes(t *testing.T) {
	rdb := newClient(t)
	c, names := lua.NewClient(rdb), lua.NewNamer("times")
	texts, times := names.Published()
	now := time.Now().UnixMicro()
	for i, step := range []struct {
		after   time.Duration
		process string
		life    time.Duration
		all     int64
	}{
		{0, "rare", 30 * time.Minute, 1},
		{10 * time.Second, "often", 3 * time.Second, 2},
		{20 * time.Second, "other", 3 * time.Second, 2},
		{29 * time.Minute, "often", 3 * time.Second, 2},
		{31 * time.Minute, "often", 3 * time.Second, 1},
		{-48 * time.Hour, "other", 3 * time.Second, 2}, // the clock has stepped back
		{-48*time.Hour + 10*time.Second, "other", 3 * time.Second, 1},
	} {
		p, errs := lua.Publish{Now: now + step.after.Microseconds(), Names: names, Process: step.process, Life: step.life.Microseconds(), Text: []byte("{}")}, make([]error, 1)
		if c.Do(t.Context(), []lua.Command{&p}, errs); errs[0] != nil || p.Processes != step.all {
			t.Errorf("step %d: %d processes, want %d, %v", i, p.Processes, step.all, errs[0])
		}
		if text := rdb.HGet(t.Context(), texts, step.process).Val(); text != fmt.Sprint(p.Now, " {}") {
			t.Errorf("step %d: %q", i, text)
		}
		for _, key := range []string{texts, times} {
			if ttl := rdb.PTTL(t.Context(), key).Val(); step.process == "often" && step.all == 2 && ttl < 50*time.Second || ttl > 31*time.Minute {
				t.Errorf("step %d: %s lives for %v", i, key, ttl)
			}
		}
	}
}
