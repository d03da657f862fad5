package limiter

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/critical"
)

// Critical marks the calls made with the returned context as critical: they may
// use what WithCriticalHeadroom keeps from others, and httpclient throttles them last when a host
// fails. The mark travels with the context, through Multi, semaphore.Semaphore and httpclient too, so
// set it where the request is known to be critical, and never from what a client
// says of itself.
func Critical(ctx context.Context) context.Context {
	return critical.Mark(ctx)
}
