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
