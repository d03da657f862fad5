package roundtrippertest

import (
	"net/http"
	"testing"
	"time"
)

// Make returns the wrapper under test around base. It must
//   - try a request at least 3 times in all when the server keeps answering 503,
//     and at most 20 times;
//   - cap a single wait at [MaxWait] or less, but at no less than 10 s;
//   - retry a 429 to a POST whose body can be sent again;
//   - not stop sending because a host fails, if less than half of 20 requests
//     to it were answered with 503; no case goes further.
//
// It is called once per case, within the case's synctest bubble if it has one,
// and releases what it made with t.Cleanup.
type Make func(t *testing.T, base http.RoundTripper) http.RoundTripper

// MaxWait is the longest single wait that a wrapper may have been given.
const MaxWait = 2 * time.Minute
