package lease

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/lua"
)

// Outbox takes units that were not spent back to Redis.
type Outbox interface {
	// GiveBack waits until that has happened, which it reports, or cannot happen now.
	GiveBack([]lua.Taken) bool
	// GiveBackSoon does not wait.
	GiveBackSoon([]lua.Taken)
}

// Config is what a table needs to know.
type Config struct {
	Size int64         // units of a lease
	Age  time.Duration // for which they may be spent
	Max  int64         // leases; a key beyond them has none
	// Names makes the keys.
	Names *lua.Namer
	// Outbox takes back what is not spent.
	Outbox Outbox
	// Start runs a function in the background, unless that is over.
	Start func(func(context.Context)) bool
}
