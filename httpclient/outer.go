package httpclient

import (
	"hash/maphash"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// outer is what the layer above, such as an SDK, repeats by itself. The zero value is nothing.
type outer uint8

const (
	// outerFailures: all but rejections.
	outerFailures outer = iota + 1
	outerAll
)

// repeatedAbove returns what the layer above repeats, as the headers of a request say. That
// layer alone then decides how many attempts there are.
func repeatedAbove(h http.Header) outer {
	switch {
	case len(h["X-Stainless-Retry-Count"]) > 0, // OpenAI, Anthropic and others
		amzRepeats(h.Get("Amz-Sdk-Request")),
		strings.Contains(h.Get("X-Goog-Api-Client"), "gccl-attempt-count/"):
		return outerAll
	case len(h["X-Stripe-Client-User-Agent"]) > 0: // it never repeats a 429 by quota
		return outerFailures
	default:
		return 0
	}
}

// amzRepeats reads a header such as "attempt=1; max=3". Without max there is no end to it.
func amzRepeats(s string) bool {
	if s == "" {
		return false
	}
	for part := range strings.SplitSeq(s, ";") {
		if v, ok := strings.CutPrefix(strings.TrimSpace(part), "max="); ok {
			return v != "1"
		}
	}
	return true
}

const (
	// maxRepeated is how many idempotency keys are remembered, at 40 bytes each.
	maxRepeated = 4096
	// repeatedFor is for how long: SDKs repeat within seconds, queues of jobs later.
	repeatedFor = 2 * time.Minute
)

// repeated remembers the recent idempotency keys: a key that comes again is a request that
// the layer above repeats. It is safe for concurrent use.
type repeated struct {
	seed maphash.Seed

	mu    sync.Mutex
	at    map[uint64]time.Time // of hashes of keys
	order [maxRepeated]uint64  // the same hashes in a ring, 0 is none
	next  int                  // the oldest of them
}

func newRepeated() *repeated {
	return &repeated{seed: maphash.MakeSeed(), at: make(map[uint64]time.Time)}
}

// before reports whether the idempotency key of a request was sent before, and remembers it.
func (r *repeated) before(h http.Header) bool {
	key := h.Get("Idempotency-Key")
	if key == "" {
		if key = h.Get("X-Idempotency-Key"); key == "" {
			return false
		}
	}
	sum := max(1, maphash.String(r.seed, key))
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.at[sum]
	r.at[sum] = now
	if ok {
		return now.Sub(at) < repeatedFor
	}
	delete(r.at, r.order[r.next])
	r.order[r.next] = sum
	r.next = (r.next + 1) % maxRepeated
	return false
}

// amzValid is for how long AWS takes a signature for valid, unless a URL says otherwise. It
// is 15 minutes for S3.
const amzValid = 5 * time.Minute

// validUntil returns when the signature of a request expires; zero is that it has none. That
// of AWS has the time at which it was made, by a clock that may differ from ours: by more
// than its validity says nothing of its age.
func validUntil(req *http.Request) time.Time {
	if a := req.Header["Authorization"]; len(a) > 0 && strings.HasPrefix(a[0], "AWS4-") {
		return amzUntil(req.Header.Get("X-Amz-Date"), amzValid)
	}
	if !strings.Contains(req.URL.RawQuery, "X-Amz-Signature=") {
		return time.Time{}
	}
	q, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return time.Time{}
	}
	s, err := strconv.ParseInt(q.Get("X-Amz-Expires"), 10, 32)
	if err != nil || s <= 0 {
		return time.Time{}
	}
	return amzUntil(q.Get("X-Amz-Date"), time.Duration(s)*time.Second)
}

func amzUntil(date string, valid time.Duration) time.Time {
	made, err := time.Parse("20060102T150405Z", date)
	if err != nil {
		return time.Time{}
	}
	now := time.Now()
	age := now.Sub(made)
	if age < 0 || age >= valid {
		age = 0
	}
	return now.Add(valid - age)
}
