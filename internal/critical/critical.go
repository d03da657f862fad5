// Package critical marks calls that may use what is kept for them: see limiter.Critical.
package critical

import "context"

type key struct{}

// Mark returns a context whose calls are critical.
func Mark(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether the calls made with ctx are critical.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }
