package retry

import "github.com/holdfast-go/holdfast/internal/enum"

// Verdict says what an attempt's outcome means for another one.
type Verdict uint8

const (
	// Default is that nothing is said.
	Default Verdict = iota
	// Final: it is the outcome; another attempt makes no sense.
	Final
	// Failed: what was done is not known. Another attempt makes sense if doing the
	// work twice does no harm.
	Failed
	// Rejected: the server did not process the request, which may be sent again.
	Rejected
)

var verdicts = [...]string{"default", "final", "failed", "rejected"}

// String returns the verdict in lower-case words.
func (v Verdict) String() string { return enum.Name(verdicts[:], v, "verdict") }

// MarshalText returns what String does, for JSON and logs.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }
