package adapters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/riverqueue/river"

	"github.com/holdfast-go/holdfast/limiter"
)

// notNow says when a task may run.
type notNow struct{ after time.Duration }

func (e *notNow) Error() string { return fmt.Sprintf("denied by a limit for %v", e.after) }

// Asynq limits the tasks of a handler, by their type.
func Asynq(lim limiter.Allower, next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		res, err := lim.AllowN(ctx, t.Type(), 1)
		switch {
		case err != nil:
			return err
		case !res.Allowed:
			return &notNow{res.RetryAfter}
		}
		return next.ProcessTask(ctx, t)
	})
}

// AsynqConfig makes a denied task come back when it may run, and not count as a failure, so that
// it keeps its retries. A task with asynq.MaxRetry(0) cannot come back.
func AsynqConfig(c asynq.Config) asynq.Config {
	c.IsFailure = func(err error) bool { return !errors.As(err, new(*notNow)) }
	c.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
		if denied := (*notNow)(nil); errors.As(err, &denied) {
			return denied.after
		}
		return asynq.DefaultRetryDelayFunc(n, err, t)
	}
	return c
}

// Report is a job of River.
type Report struct {
	Tenant string `json:"tenant"`
}

// Kind is River's name of the job.
func (Report) Kind() string { return "report" }

// ReportWorker works on the reports that a tenant's limit admits. Others sleep until they may
// run; River does not count that as an attempt.
type ReportWorker struct {
	river.WorkerDefaults[Report]
	Limiter limiter.Allower
	Do      func(context.Context, Report) error
}

// Work works on a job.
func (w *ReportWorker) Work(ctx context.Context, job *river.Job[Report]) error {
	res, err := w.Limiter.AllowN(ctx, job.Args.Tenant, 1)
	switch {
	case err != nil:
		return err
	case !res.Allowed:
		return river.JobSnooze(res.RetryAfter)
	}
	return w.Do(ctx, job.Args)
}
