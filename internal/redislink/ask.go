package redislink

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/internal/lua"
)

// Error is what came of a request that failed.
type Error struct {
	Class breaker.Class
	Err   error
}

// Error returns what Redis, the network or the link said.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// FallsBack reports that err is an *Error that leaves a decision to the fallback.
func FallsBack(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Class.Fallback()
}

// CallerError returns what the caller of a request is told whose error has a class that
// the fallback does not hide: the context's own error, ErrClosed, or for breaker.ClassBug
// err itself.
func CallerError(ctx context.Context, class breaker.Class, err error) error {
	switch {
	case class == breaker.ClassBug:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrClosed):
		return ErrClosed
	}
	// The clock has passed the deadline, and the context's timer has not fired yet.
	return context.DeadlineExceeded
}

// Exec runs a command on keys of an encoded id. It ends with the context, the budget and
// the link. The error is an *Error.
func (l *Link) Exec(ctx context.Context, id string, cmd lua.Command) error {
	return l.Ask(ctx, l.Server(id), &Op{ID: id, Command: cmd}, l.cfg.Budget)
}

// Ask is Do for requests that are not worth asking an open breaker for. The error is an
// *Error.
func (l *Link) Ask(ctx context.Context, srv *Server, o *Op, budget time.Duration) error {
	if srv.Breaker.Refuses() {
		return &Error{breaker.ClassUnavailable, ErrOpen}
	}
	if class, err := l.Do(ctx, srv, o, budget); class != breaker.ClassOK {
		return &Error{class, err}
	}
	return nil
}

// AskAll asks for several requests side by side, so that they share calls, and returns
// the error of each.
func (l *Link) AskAll(ctx context.Context, ops []*Op) []error {
	return each(ops, func(o *Op) error { return l.Ask(ctx, l.Server(o.ID), o, l.cfg.Budget) })
}

// Last is Ask for what Close has to send, whatever the breaker says.
func (l *Link) Last(o *Op) error {
	o.Lasts = true
	if class, err := l.Do(context.Background(), l.Server(o.ID), o, l.cfg.Budget); class != breaker.ClassOK {
		return &Error{class, err}
	}
	return nil
}

// LastAll is AskAll for what Close has to send.
func (l *Link) LastAll(ops []*Op) []error { return each(ops, l.Last) }

func each(ops []*Op, ask func(*Op) error) []error {
	errs := make([]error, len(ops))
	var wg sync.WaitGroup
	for i, o := range ops {
		wg.Go(func() { errs[i] = ask(o) })
	}
	wg.Wait()
	return errs
}
