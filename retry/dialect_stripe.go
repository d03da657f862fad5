package retry

import "net/http"

// stripe says in a header whether to try again, such as after a lock timeout (409), or not,
// as after a failure whose outcome is stored under the idempotency key.
func stripe(_ int, h http.Header) Verdict { return shouldRetry(h, "Stripe-Should-Retry") }
