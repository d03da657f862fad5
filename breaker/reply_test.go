package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
)

// reply is an error reply as go-redis returns it.
type reply string

func (r reply) Error() string { return string(r) }
func (r reply) RedisError()   {}

const sha = "1f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c"

// known is a line of testdata/replies.txt.
type known struct {
	server, text string
	want         breaker.Class
}

func replies(t testing.TB) (out []known) {
	t.Helper()
	all, err := os.ReadFile("testdata/replies.txt")
	if err != nil {
		t.Fatal(err)
	}
	classes := map[string]breaker.Class{}
	for _, c := range []breaker.Class{breaker.ClassUnavailable, breaker.ClassReadOnly, breaker.ClassNoScript, breaker.ClassRedirect, breaker.ClassPermission, breaker.ClassBug} {
		classes[c.String()] = c
	}
	for line := range strings.Lines(string(all)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 {
			t.Fatalf("%q has %d fields", line, len(f))
		}
		text, err := strconv.Unquote(f[2])
		want, ok := classes[f[1]]
		if err != nil || !ok {
			t.Fatalf("%q: no class, or %v", line, err)
		}
		out = append(out, known{f[0], text, want})
	}
	return out
}

func TestClassifyReplies(t *testing.T) {
	ctx := context.Background()
	for _, tt := range replies(t) {
		if got := breaker.Classify(ctx, reply(tt.text)); got != tt.want {
			t.Errorf("%s: %q: %v, want %v", tt.server, tt.text, got, tt.want)
		}
		wrapped := fmt.Errorf("limiter: %w", errors.Join(errors.New("context"), reply(tt.text)))
		if got := breaker.Classify(ctx, wrapped); got != tt.want {
			t.Errorf("wrapped %q: %v, want %v", tt.text, got, tt.want)
		}
		// A reply is what Redis said, whenever it was said.
		over, cancel := context.WithCancel(ctx)
		cancel()
		if got := breaker.Classify(over, reply(tt.text)); got != tt.want {
			t.Errorf("%q after the caller left: %v, want %v", tt.text, got, tt.want)
		}
	}
}

func TestClassifyGoRedisReplies(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want breaker.Class
	}{
		{redis.Nil, breaker.ClassBug},
		{redis.TxFailedErr, breaker.ClassBug},
		{redis.ErrCrossSlot, breaker.ClassBug},
		{redis.ErrNoScript, breaker.ClassNoScript},
		// What sentinels answer is not what the script answered.
		{fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(redis.Nil, reply("NOPERM x"))), breaker.ClassUnavailable},
	} {
		if got := breaker.Classify(context.Background(), tt.err); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}

// Any text is classed without a panic, and never as something only a call can be.
func FuzzClassifyReply(f *testing.F) {
	for _, tt := range replies(f) {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := breaker.Classify(context.Background(), reply(text))
		if c == breaker.ClassOK || c == breaker.ClassCaller || c == breaker.ClassSlow || c == breaker.ClassAborted {
			t.Errorf("%q: a reply is never %v", text, c)
		}
	})
}
