package lua_test

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// TestReadBrokenStates: a text that no script has written is an error for operators, and no limit by
// which nothing can be divided.
func TestReadBrokenStates(t *testing.T) {
	good := []string{
		"1796391338345056:1795391338345055:1:1000000:10:0",
		"1796391338345056:1795391338345055:1796391338345056:7:1:1000000:10:0",
		"0000000000000000:0000000000000000:1796391338345056:7:0:0:0:0", // blocked and never used
	}
	broken := []string{
		"", "text", "1:2:3:4:5", "1:2:3:4:5:6:7", "1:2:-3:4:5:6",
		"1796391338345056:1795391338345055:0:1000000:10:0", "1796391338345056:1795391338345055:1:0:10:0",
		"1796391338345056:1795391338345055:0:0:10:0", "0000000000000000:1:1:0:0:0",
		"9223372036854775807:1795391338345055:1:1000000:10:0", "1796391338345056:1795391338345055:1:9007199254740993:10:0",
	}
	for _, kind := range algo.Kinds {
		if kind == algo.SlidingWindowLog {
			continue
		}
		for _, text := range good {
			if _, _, err := lua.ReadState(kind, text); err != nil {
				t.Errorf("%v, %q: %v", kind, text, err)
			}
		}
		for _, text := range broken {
			var e *lua.ReplyError
			if _, p, err := lua.ReadState(kind, text); !errors.As(err, &e) {
				t.Errorf("%v, %q: %+v, %v", kind, text, p, err)
			}
		}
	}
}
