package roundtrippertest

import (
	"cmp"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"
)

// scenario is one request to a server that does some steps, and what must come of it.
// Whatever that is, the request is not modified, what is sent is what it says, and all bodies
// are closed.
type scenario struct {
	steps  []step
	method string // GET unless it is set
	body   string
	change func(*testing.T, *http.Request) *http.Request // of the request, before it is sent; nil is none

	status int           // of the response
	reads  string        // its body; "" is any
	errs   []error       // or an error that matches one of these
	sent   int           // requests that arrive; 0 is 3 to 20
	gap    time.Duration // the least time between the first two, and half of the longest
	took   time.Duration // in all; 0 is any
	atOnce bool          // without a wait
}

// all returns a case of several scenarios.
func all(of ...scenario) func(*testing.T, Make) {
	return func(t *testing.T, newTransport Make) {
		for _, s := range of {
			s.check(t, newTransport)
		}
	}
}

func (s scenario) check(t *testing.T, newTransport Make) {
	t.Helper()
	f := &fake{steps: s.steps}
	r, b := newRequest(t, cmp.Or(s.method, http.MethodGet), s.body)
	if s.change != nil {
		r = s.change(t, r)
	}
	before := image(r)
	rt := newTransport(t, f)
	start := time.Now()
	resp, err := rt.RoundTrip(r)
	took := time.Since(start)
	for k, v := range image(r) {
		if !reflect.DeepEqual(v, before[k]) {
			t.Errorf("%s was changed from %v to %v", k, before[k], v)
		}
	}
	switch {
	case err != nil && resp != nil:
		t.Errorf("a response besides the error %v", err)
	case err != nil:
		if !slices.ContainsFunc(s.errs, func(want error) bool { return errors.Is(err, want) }) {
			t.Errorf("error %v, want status %d or one of the errors %v", err, s.status, s.errs)
		}
	default:
		wantStatus(t, resp, s.status)
		if got := finish(t, resp); s.reads != "" && got != s.reads {
			t.Errorf("a body of %d bytes, %.20q, want %d bytes, %.20q", len(got), got, len(s.reads), s.reads)
		}
	}
	if s.took != 0 && took != s.took || s.atOnce && took > time.Second {
		t.Errorf("it took %v", took)
	}
	f.wantClosed(t)
	b.wantClosed(t)
	calls := f.sent()
	if n := len(calls); n != s.sent && (s.sent != 0 || n < 3 || n > 20) {
		t.Errorf("the base was called %d times, want %d, of which 0 is 3 to 20", n, s.sent)
	}
	for i, c := range calls {
		if c.body != s.body || c.length != int64(len(s.body)) {
			t.Errorf("attempt %d was sent with %d bytes, of which the header says %d, want %d", i+1, len(c.body), c.length, len(s.body))
		}
		for k, v := range r.Header {
			if !slices.Equal(c.header[k], v) {
				t.Errorf("attempt %d was sent with the headers %v, want %v", i+1, c.header, r.Header)
			}
		}
	}
	for i := 1; i < len(calls); i++ {
		if d := calls[i].at.Sub(calls[i-1].at); d < s.gap || d > cmp.Or(2*s.gap, MaxWait) {
			t.Errorf("tried again after %v, want %v to %v", d, s.gap, cmp.Or(2*s.gap, MaxWait))
		}
	}
}

// image is all of a request that a wrapper might be tempted to change.
func image(r *http.Request) map[string]any {
	return map[string]any{
		"Method": r.Method, "URL": r.URL.String(), "Header": r.Header.Clone(), "Body": r.Body,
		"ContentLength": r.ContentLength, "Host": r.Host, "Close": r.Close, "RequestURI": r.RequestURI,
		"TransferEncoding": append([]string(nil), r.TransferEncoding...), "Trailer": r.Trailer.Clone(),
		"Context": r.Context(), "GetBody": reflect.ValueOf(r.GetBody).Pointer(),
	}
}

// each returns a case of a scenario for each value.
func each[T any](values []T, of func(T) scenario) func(*testing.T, Make) {
	var list []scenario
	for _, v := range values {
		list = append(list, of(v))
	}
	return all(list...)
}

// answers are steps without bodies.
func answers(statuses ...int) (out []step) {
	for _, status := range statuses {
		out = append(out, step{status: status})
	}
	return out
}

// asks is a response with a Retry-After.
func asks(status int, wait string) step {
	return step{status: status, header: map[string]string{"Retry-After": wait}, body: "later"}
}

// put is a request with a body that can be sent again.
func put(want scenario, steps ...step) scenario {
	want.method, want.body, want.steps = http.MethodPut, "hello", steps
	return want
}

// post is the same for a request that must not be repeated.
func post(want scenario, steps ...step) scenario {
	want.method, want.body, want.steps = http.MethodPost, "hello", steps
	return want
}

var (
	errReset = errors.New("read: connection reset by peer")
	errLeft  = errors.New("the user left")
)

// oddHeader adds a header that is not canonical.
func oddHeader(_ *testing.T, r *http.Request) *http.Request {
	r.Header["X-Odd-case"] = []string{"1", "2"}
	return r
}

// retryAfterDates: one second less, because dates are cut to seconds.
func retryAfterDates(t *testing.T, newTransport Make) {
	for _, layout := range []string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		now := time.Now().UTC()
		dated := asks(503, now.Add(8*time.Second).Truncate(time.Second).Format(layout))
		dated.header["Date"] = now.Format(http.TimeFormat)
		scenario{steps: []step{dated, {status: 200}}, status: 200, sent: 2, gap: 7 * time.Second}.check(t, newTransport)
	}
}
