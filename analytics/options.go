package analytics

import (
	"bytes"
	"crypto/rand"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

const (
	// DefaultPeriod is the period without WithPeriod.
	DefaultPeriod = 10 * time.Minute
	// MaxCapacity is the largest capacity of a Top.
	MaxCapacity = 10_000

	minPeriod, maxPeriod = time.Second, 24 * time.Hour
)

// Option tunes a Top.
type Option func(*config)

type config struct {
	period time.Duration
	hashed bool
	secret []byte
}

// WithPeriod sets the period, by default 10 minutes: at least 1 s and at most 24 h. A
// report is about the current and the previous one, which is between one and two
// periods of time.
func WithPeriod(d time.Duration) Option { return func(c *config) { c.period = d } }

// WithHashedKeys makes reports show a hash instead of the key: the first 16 bytes of the
// HMAC-SHA256 (RFC 2104) of what Key.Key would be, in hexadecimal. With a plain hash, any
// reader could find an address by hashing all addresses; with this one only a reader that has
// the secret can. Processes with the same secret show the same hash for a key. Without one, nil
// or empty, the process makes one at random: then hashes cannot be compared with those
// of another process, nor with those of before a restart.
func WithHashedKeys(secret []byte) Option {
	secret = bytes.Clone(secret)
	return func(c *config) { c.hashed, c.secret = true, secret }
}

// processSecret is of those who gave none.
var processSecret = sync.OnceValue(func() []byte {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return secret
})

func newConfig(capacity int, opts []Option) (*config, error) {
	c := &config{period: DefaultPeriod}
	if err := configerr.Apply(c, opts); err != nil {
		return nil, err
	}
	switch {
	case capacity < 1 || capacity > MaxCapacity:
		return nil, configerr.New("capacity", capacity, "must be 1 to %d", MaxCapacity)
	case c.period < minPeriod || c.period > maxPeriod:
		return nil, configerr.New("period", c.period, "must be between %v and %v", minPeriod, maxPeriod)
	case c.hashed && len(c.secret) == 0:
		c.secret = processSecret()
	}
	return c, nil
}
