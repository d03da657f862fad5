// Package retry retries failed operations, without making it worse: exponential
// backoff with jitter ([Backoff]), a budget that bounds how much load retries
// may add ([Budget]), adaptive throttling of calls to servers that fail
// ([Throttle]), and readers for what servers say about whether and when to come back
// ([ParseAnswer], [ParseRetryAfter], [ParseQuota]).
//
//	err := retry.Do(ctx, retry.Policy{}, func(ctx context.Context) error {
//		return call(ctx)
//	})
//
// [Do] never sleeps past the context's deadline, and never sleeps only to find
// out at the deadline that it was too late: a wait that does not fit ends the
// call at once, with an [*Error] that has the last error and the wait.
package retry
