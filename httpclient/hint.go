package httpclient

import (
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// hint is what a response says about another attempt.
type hint struct {
	verdict Verdict
	// asked says that the server named a wait that is meant for this request.
	asked bool
	// exhausted says that nothing is left of a quota until wait has passed.
	exhausted bool
	wait      time.Duration
	source    string // the header
}

// hintOf reads a response's status and headers.
func hintOf(resp *http.Response, format retry.ResetFormat) hint {
	a := retry.ParseAnswer(resp.StatusCode, resp.Header, time.Time{}, format)
	return hint{a.Verdict, a.Asked, a.Asked && a.Remaining == 0, a.Wait, a.Source}
}

// Wait returns how long to wait before the request of resp makes sense again:
// what the [Transport] found when it gave up, else what the headers ask for.
// It reports false if neither says anything. The response may come from any
// transport.
func Wait(resp *http.Response) (time.Duration, bool) {
	if e := GaveUp(resp); e != nil && e.Wait > 0 {
		return e.Wait, true
	}
	if resp == nil {
		return 0, false
	}
	h := hintOf(resp, retry.ResetGuess)
	return h.wait, h.asked
}
