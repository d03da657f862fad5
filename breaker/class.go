package breaker

import "github.com/holdfast-go/holdfast/internal/enum"

// Class is what the outcome of a Redis call means for a decision: who is at
// fault and what to do. The zero value is [ClassOK]. A Class is a plain value,
// safe for concurrent use.
type Class uint8

const (
	// ClassOK is the absence of an error: Redis decided.
	ClassOK Class = iota

	// ClassUnavailable means Redis can't be reached or does not work: dial and
	// read errors, timeouts of the network or of the pool, LOADING, MASTERDOWN,
	// CLUSTERDOWN, BUSY, too many clients, failed authentication. It counts; the
	// fallback decides.
	ClassUnavailable

	// ClassReadOnly means Redis answers reads and rejects writes: READONLY, OOM,
	// MISCONF, NOREPLICAS. It counts; the fallback decides. Only a call that
	// wrote shows that it is over: see [ProofWrite].
	ClassReadOnly

	// ClassSlow means no answer within a deadline that was not the caller's,
	// or an answer slower than [Settings.SlowCall]. It counts; the fallback
	// decides.
	ClassSlow

	// ClassNoScript means the server does not know the script or function, so
	// nothing ran: load it and replay once. Neutral. Should it come back from
	// the replay too, the fallback decides.
	ClassNoScript

	// ClassRedirect is a MOVED, ASK, TRYAGAIN or REDIRECT that the client did
	// not follow: the cluster is being reshaped and works. Neutral; the
	// fallback decides.
	ClassRedirect

	// ClassCaller means the caller's own context ended. Neutral: it says
	// nothing about Redis. The caller gets the error of its context.
	ClassCaller

	// ClassPermission means the ACL user may not run the script or a command
	// in it. Neutral: waiting won't cure it. The fallback decides; log it
	// once, at error level.
	ClassPermission

	// ClassBug means Redis answered, and the request or the data is wrong:
	// WRONGTYPE, CROSSSLOT, any other script error, a nil reply. Neutral; the
	// caller gets the error.
	ClassBug

	// ClassAborted means the call was cancelled, but not by this caller: the
	// library was closing, or the call was shared and the one who made it
	// left. Neutral: the call says nothing about Redis. The fallback decides,
	// because this caller is still waiting and is not at fault.
	ClassAborted
)

// Failure reports whether the class counts against the breaker. All others but
// [ClassOK] are neutral: they count neither for nor against it.
func (c Class) Failure() bool {
	return c == ClassUnavailable || c == ClassReadOnly || c == ClassSlow
}

// Fallback reports whether the decision is made by the fallback. For
// [ClassNoScript] that holds only after the one replay: check for it first.
func (c Class) Fallback() bool {
	switch c {
	case ClassUnavailable, ClassReadOnly, ClassSlow, ClassNoScript, ClassRedirect, ClassPermission, ClassAborted:
		return true
	default:
		return false
	}
}

var classNames = [...]string{"ok", "unavailable", "read-only", "slow", "no-script", "redirect", "caller", "permission", "bug", "aborted"}

// String returns a short lower-case name, fit for a log field or a metric label.
func (c Class) String() string { return enum.Name(classNames[:], c, "class") }

// MarshalText returns the class's name, for JSON and logs.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Proof says what an answer shows of Redis. The zero value is [ProofWrite]. A
// failure is over when an answer proves what failed: that Redis can be reached
// proves nothing about its ability to write.
type Proof uint8

const (
	// ProofWrite: Redis has written, so it can do everything.
	ProofWrite Proof = iota
	// ProofRun: a call that may write was answered and wrote nothing, such as a
	// denial.
	ProofRun
	// ProofRead: a call that only reads was answered, perhaps by a replica.
	ProofRead
)

var proofNames = [...]string{"write", "run", "read"}

// String returns what is proven, in one lower-case word.
func (p Proof) String() string { return enum.Name(proofNames[:], p, "proof") }

// MarshalText returns what String does, for JSON and logs.
func (p Proof) MarshalText() ([]byte, error) { return []byte(p.String()), nil }
