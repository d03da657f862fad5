package lua_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// before7 answers as a server before Redis 7.0 does, without any server.
type before7 struct{}

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

func (before7) DialHook(next redis.DialHook) redis.DialHook { return next }

func (before7) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { answerBefore7(cmd); return cmd.Err() }
}

func (before7) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			answerBefore7(cmd)
		}
		return nil
	}
}

func answerBefore7(cmd redis.Cmder) {
	cmd.SetErr(nil)
	if strings.HasSuffix(cmd.Name(), "_ro") {
		cmd.SetErr(replyError("ERR unknown command `evalsha_ro`, with args beginning with: "))
	} else if set, ok := cmd.(interface{ SetVal([]int64) }); ok {
		set.SetVal([]int64{1, 9})
	}
}

// TestPeeksAtOnceBefore7: of peeks that are on their way when the first answer says that the
// server has no read-only forms, none fails.
func TestPeeksAtOnceBefore7(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	rdb.AddHook(before7{})
	c, names := lua.NewClient(rdb), lua.NewNamer("p")
	p := lua.NewArgs(algo.Params{Kind: algo.FixedWindow, Cap: 10, Num: 10, Den: 3_600_000_000})
	cmds := make([]lua.Command, 3)
	for i := range cmds {
		cmds[i] = &lua.Decide{Nonce: "n", Items: []lua.Item{{Keys: names.KeysOf(algo.FixedWindow, string(rune('a'+i))), Params: p}}}
	}
	errs := make([]error, len(cmds))
	c.Do(t.Context(), cmds, errs)
	for i, err := range errs {
		if err != nil {
			t.Errorf("peek %d: %v", i, err)
		}
	}
}
