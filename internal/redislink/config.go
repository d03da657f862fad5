package redislink

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/chain"
	"github.com/holdfast-go/holdfast/internal/configerr"
)

// The defaults of a Config.
const (
	DefaultBudget      = 50 * time.Millisecond
	DefaultPrefix      = "holdfast"
	DefaultMaxInFlight = 128
	DefaultExpected    = 10
)

// Config is what a link needs to know. The zero value of a field is its default.
type Config struct {
	Client redis.UniversalClient
	// Prefix is the first part of every key, and of the names of the breakers.
	Prefix      string
	Budget      time.Duration
	MaxInFlight int // calls per server
	Breaker     breaker.Settings
	Functions   bool

	// Policy is what decides while Redis cannot.
	Policy fallback.Policy
	// Share is this process's part of a limit; 0 is learnt from the heartbeat. Process
	// names the process in it; empty is a random name.
	Share   float64
	Process string
	// Expected is how many processes this one assumes until Redis, or PeerCount, which may
	// be nil, has given a number.
	Expected  int
	PeerCount func(context.Context) (int, error)

	Logger *slog.Logger
	// OnCall, if set, is called after each call, and OnChange for each change of a
	// breaker's state.
	OnCall   func(context.Context, Call)
	OnChange func(context.Context, breaker.Change)
}

// Call is a call to Redis that has ended.
type Call struct {
	Server string // its name
	Class  breaker.Class
	Err    error // nil when Class is breaker.ClassOK
	Took   time.Duration
}

// withDefaults fills in the defaults and checks what depends on several fields. Each
// field was checked when it was set.
func (c Config) withDefaults() (Config, error) {
	if configerr.IsNil(c.Client) {
		return c, configerr.New("client", "nil", "must be a go-redis client")
	}
	if c.Share != 0 && c.Policy != fallback.Local {
		return c, configerr.New("share", c.Share, "has a meaning only with the fallback Local; leave it out or change the fallback, which is %v", c.Policy)
	}
	c.Budget = cmp.Or(c.Budget, DefaultBudget)
	if err := c.fits(); err != nil {
		return c, err
	}
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.Expected = cmp.Or(c.Expected, DefaultExpected)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c, nil
}

// fits rejects a budget that the client's own timeouts would cut short, where they cannot
// be changed for the link alone.
func (c *Config) fits() error {
	var read, write time.Duration
	switch client := c.Client.(type) {
	case *redis.ClusterClient:
		read, write = client.Options().ReadTimeout, client.Options().WriteTimeout
	case *redis.Ring:
		read, write = client.Options().ReadTimeout, client.Options().WriteTimeout
	}
	name, d := "ReadTimeout", read
	if write > 0 && (write < read || read <= 0) {
		name, d = "WriteTimeout", write
	}
	if d > 0 && d < c.Budget {
		return configerr.New("budget", c.Budget, "is longer than the client's %s of %v, which ends calls sooner: raise that, or lower the budget", name, d)
	}
	return nil
}

// breakerSettings completes the settings of the breakers. changed is called for each
// change of a state, before the function of the user.
func (c *Config) breakerSettings(changed func(context.Context, breaker.Change)) breaker.Settings {
	set := c.Breaker
	set.Name = cmp.Or(set.Name, c.Prefix)
	if set.ProbeTimeout == 0 {
		// A probe ends with the budget; a little more, so that one which just made it is
		// not called late.
		set.ProbeTimeout = c.Budget + c.Budget/4
	}
	if set.OpenMax == 0 {
		// Processes that return at different times use Redis and their shares side by
		// side: the sooner the last one is back, the less is admitted beyond the limit. A
		// probe costs one caller at most the budget.
		set.OpenMax = max(5*time.Second, set.OpenMin)
	}
	set.SlowCall = cmp.Or(set.SlowCall, c.Budget/2)
	set.OnChange = chain.Two(changed, set.OnChange)
	return set
}
