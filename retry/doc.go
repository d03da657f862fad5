// Package retry retries failed operations without overloading the server: exponential
// backoff with jitter ([Backoff]), a budget that bounds how much load retries may add
// ([Budget]), adaptive throttling of calls to servers that fail ([Throttle]), and parsers
// for what servers say about whether and when to retry ([ParseAnswer], [ParseBody],
// [ParseRetryAfter], [ParseQuota]).
//
//	err := retry.Do(ctx, retry.Policy{}, func(ctx context.Context) error {
//		return call(ctx)
//	})
//
// [Do] never sleeps past the context's deadline. A wait that does not fit before the
// deadline ends the call at once, with an [*Error] that has the last error and the wait.
package retry
