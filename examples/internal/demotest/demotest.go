// Package demotest has what the tests of the example programs share.
package demotest

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Program is what an example does with its flags.
type Program[C any] func(ctx context.Context, cfg C, out io.Writer) error

// Output runs a program with the embedded Redis and with a real one, and lets check
// check what it prints.
func Output[C any](t *testing.T, run Program[C], cfg C, check func(t *testing.T, out string)) {
	works := func(t *testing.T) {
		t.Setenv("REDIS_URL", "")
		var out bytes.Buffer
		if err := run(t.Context(), cfg, &out); err != nil {
			t.Fatal(err)
		}
		t.Log(out.String())
		check(t, out.String())
	}
	t.Run("embedded", func(t *testing.T) {
		t.Setenv("PATH", "")
		t.Setenv("HOLDFAST_REDIS_SERVER", "")
		works(t)
	})
	t.Run("real server", func(t *testing.T) {
		redistest.Require(t)
		works(t)
	})
}

// BadFlags is for flags that a program must reject: each has one mistake.
func BadFlags[C any](t *testing.T, run Program[C], good C, spoil ...func(*C)) {
	t.Setenv("REDIS_URL", "")
	for _, f := range spoil {
		cfg := good
		f(&cfg)
		if err := run(t.Context(), cfg, io.Discard); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}
