package analytics

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

const (
	// defaultKeys is how many keys are reported without a number in the query.
	defaultKeys = 10
	// longestQuery bounds what is parsed.
	longestQuery = 1024
)

// ServeHTTP answers GET and HEAD with the Report in JSON: of ?n= keys, 1 to the
// capacity and by default 10 (the capacity, if that is less). Other methods get 405, and
// other values of n 400 with a problem of RFC 9457. It shows whom you deny: put it
// behind your own authentication.
func (t *Top) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serve(w, r, t.capacity, func(n int) any { return t.Report(n) })
}

// Handler returns a handler that reports several, by name: {"limiters": [...]}, each a
// Report with a name, in the order of the names. n is 1 to the largest capacity, and at
// most the capacity of each is reported; otherwise it is as Top.ServeHTTP. It is safe
// for concurrent use. The error matches
// limiter.ErrInvalidConfig: there must be one, none may
// be nil, and names must not be empty.
func Handler(tops map[string]*Top) (http.Handler, error) {
	h, err := handler(tops)
	return h, configerr.In("analytics", err)
}

func handler(tops map[string]*Top) (http.Handler, error) {
	if len(tops) == 0 {
		return nil, configerr.New("tops", 0, "must be at least 1")
	}
	most := 0
	for name, t := range tops {
		switch {
		case name == "":
			return nil, configerr.New("name", `""`, "must not be empty")
		case t == nil || t.capacity == 0:
			return nil, configerr.New("top", fmt.Sprintf("nil or the zero value for %q", name), "must be made by New")
		}
		most = max(most, t.capacity)
	}
	tops = maps.Clone(tops)
	names := slices.Sorted(maps.Keys(tops))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, most, func(n int) any {
			all := make([]named, 0, len(names))
			for _, name := range names {
				all = append(all, named{name, tops[name].Report(n)})
			}
			return struct {
				Limiters []named `json:"limiters"`
			}{all}
		})
	}), nil
}

type named struct {
	Name string `json:"name"`
	Report
}

// serve answers with the report on as many keys as the request asks for, up to most.
func serve(w http.ResponseWriter, r *http.Request, most int, report func(n int) any) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		reject(w, r, http.StatusMethodNotAllowed, fmt.Sprintf("method is %s: must be GET or HEAD", clip(r.Method)))
		return
	}
	n, err := keysOf(r.URL, most)
	if err != nil {
		reject(w, r, http.StatusBadRequest, err.Error())
		return
	}
	write(w, r, http.StatusOK, "application/json", report(n))
}

// keysOf reads how many keys are asked for.
func keysOf(u *url.URL, most int) (int, error) {
	if len(u.RawQuery) > longestQuery {
		return 0, fmt.Errorf("query is %d bytes: must be at most %d", len(u.RawQuery), longestQuery)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return 0, fmt.Errorf("query is %s: must be pairs of names and values, percent-encoded", clip(u.RawQuery))
	}
	values, given := query["n"]
	switch {
	case !given:
		return min(defaultKeys, most), nil
	case len(values) > 1:
		return 0, fmt.Errorf("n is given %d times: must be given once", len(values))
	}
	n, err := strconv.Atoi(values[0])
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("n is %s: must be a whole number from 1 to %d", clip(values[0]), most)
	}
	return n, nil
}

// clip quotes what a client sent, or the beginning of it.
func clip(s string) string {
	const most = 32
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// problem is the body of a rejection, by RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func reject(w http.ResponseWriter, r *http.Request, status int, detail string) {
	write(w, r, status, "application/problem+json", problem{"about:blank", http.StatusText(status), status, detail})
}

func write(w http.ResponseWriter, r *http.Request, status int, contentType string, body any) {
	b, err := json.Marshal(body)
	if err != nil { // of strings, numbers and times of this age: never
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(b)+1))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(b, '\n'))
	}
}

var _ http.Handler = (*Top)(nil)
