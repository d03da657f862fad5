package redislink

import (
	"context"
	"errors"
	"slices"
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
	return failure(l.Do(ctx, srv, o, budget))
}

// AskAll asks for several requests at once, so that they share calls, and returns the
// error of each.
func (l *Link) AskAll(ctx context.Context, ops []*Op) []error {
	errs, begun := make([]error, len(ops)), make([]*queue, len(ops))
	for i, o := range ops {
		switch srv := l.Server(o.ID); {
		case srv.Breaker.Refuses():
			errs[i] = &Error{breaker.ClassUnavailable, ErrOpen}
		case srv.queue.start(ctx, o, l.cfg.Budget):
			begun[i] = srv.queue
		default:
			errs[i] = failure(o.Class, o.Err)
		}
	}
	for i, q := range begun {
		if q != nil {
			errs[i] = failure(q.await(ctx, ops[i]))
		}
	}
	l.watch(slices.ContainsFunc(errs, func(err error) bool { return err != nil }))
	return errs
}

// failure is the error of a request that ended with a class.
func failure(class breaker.Class, err error) error {
	if class == breaker.ClassOK {
		return nil
	}
	return &Error{class, err}
}

// Last is Ask for what Close has to send, whatever the breaker says.
func (l *Link) Last(o *Op) error {
	o.Lasts = true
	return failure(l.Do(context.Background(), l.Server(o.ID), o, l.cfg.Budget))
}
