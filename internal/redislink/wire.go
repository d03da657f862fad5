package redislink

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// wire is what the queues of a link share: the client, and what calls by it need.
type wire struct {
	lua         *lua.Client
	functions   bool // the Config asks for functions
	names       *lua.Namer
	fair        time.Duration // an answer that took longer is slow
	budget      time.Duration
	plain       bool // there is one server, as far as the client knows
	inFlight    int  // the most calls per server
	connections int  // of the client, to a server; 0 if that is not known
	ends        bool // the client ends a call at the deadline of its context
	nonces      nonces
	// ops keeps memory for the next use. Each link has its own: nothing of one link, least of
	// all a channel, is ever used by another.
	ops    sync.Pool
	events *events
}

// do sends commands to the server of a clock. A hook of the client's that panics would end the program from here,
// where no caller can recover: it is an error of the commands, which may have been executed.
func (w *wire) do(ctx context.Context, clock *lua.Clock, cmds []lua.Command, errs []error) {
	defer func() {
		if v := recover(); v != nil {
			for i := range errs {
				if errs[i] == nil {
					errs[i] = fmt.Errorf("the redis client panicked: %v", v)
				}
			}
		}
	}()
	w.lua.DoBy(ctx, clock, cmds, errs)
}

// called reports a call that has ended.
func (w *wire) called(server string, class breaker.Class, err error, took time.Duration) {
	w.events.called(Call{server, class, err, took})
	if w.functions {
		if inUse, why := w.lua.Functions(); !inUse {
			w.events.noFunctions(why)
		}
	}
}
