package httpclient

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast/retry"
)

// outcome is kept in the context of a response's request.
type outcome struct {
	resp *http.Response // of which it is true; contexts are passed on
	err  *Error
}

type outcomeKey struct{}

func gaveUp(resp *http.Response, req *http.Request, e *Error) *http.Response {
	resp.Request = req.WithContext(context.WithValue(req.Context(), outcomeKey{}, &outcome{resp, e}))
	return resp
}

// GaveUp returns why a [Transport] returned resp rather than tried again, or
// nil if there was no reason to try again.
func GaveUp(resp *http.Response) *Error {
	if resp == nil || resp.Request == nil {
		return nil
	}
	if o, ok := resp.Request.Context().Value(outcomeKey{}).(*outcome); ok && o.resp == resp {
		return o.err
	}
	return nil
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
	a := answerOf(resp, retry.ResetGuess)
	return a.Wait, a.Asked
}

// answerOf reads a response's status and headers.
func answerOf(resp *http.Response, format retry.ResetFormat) retry.Answer {
	return retry.ParseAnswer(resp.StatusCode, resp.Header, time.Time{}, format)
}
