package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/configerr"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/redislink"
	"github.com/holdfast-go/holdfast/limiter"
)

const (
	// answerWithin is how long Redis has for one request, where the client's deadlines hold.
	answerWithin = 10 * time.Second
	// mostBody and mostQuery bound what is read of a request.
	mostBody, mostQuery = 16 << 10, 8 << 10
)

// Option is an option of Handler.
type Option func(*config)

type config struct {
	prefix string
	writes bool
	secret []byte
}

// WithPrefix sets the prefix of the limiters, by default "holdfast".
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithWrites lets requests change what is in Redis: block, unblock, reset, and limits. Without it these answer 403.
func WithWrites() Option { return func(c *config) { c.writes = true } }

// WithKeySecret is the secret of analytics.WithHashedKeys, so that /top finds a key by its hash.
func WithKeySecret(secret []byte) Option { return func(c *config) { c.secret = secret } }

// Handler returns the handler, which is safe for concurrent use and keeps nothing between requests. It shows the keys
// of callers and has no authentication: put it behind your own. The client stays the caller's. The error
// matches limiter.ErrInvalidConfig.
//
// Errors are problems of RFC 9457: 400 for what cannot be done, 403 for a change without WithWrites, 404 and 405, 415
// for a body that is not application/json, which also keeps pages of other sites from sending one, and 502 when
// Redis cannot be reached or rejects it.
func Handler(rdb redis.UniversalClient, opts ...Option) (http.Handler, error) {
	c := &config{prefix: redislink.DefaultPrefix}
	if err := configerr.Apply(c, opts); err != nil {
		return nil, configerr.In("admin", err)
	}
	op, err := operator.New(rdb, c.prefix)
	if err != nil {
		return nil, configerr.In("admin", err)
	}
	h := &handler{c, op}
	mux := http.NewServeMux()
	for path, do := range map[string]func(context.Context, *http.Request) (any, error){
		"GET /check": h.check, "GET /fleet": h.fleet, "GET /top": h.top, "GET /inspect": h.inspect, "GET /limits": h.limits,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { serve(w, r, do) })
	}
	for path, do := range map[string]func(context.Context, *change) (any, error){
		"POST /block": h.block, "POST /unblock": h.unblock, "POST /reset": h.reset, "POST /limits": h.setLimit,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			serve(w, r, func(ctx context.Context, r *http.Request) (any, error) {
				if !c.writes {
					return nil, problem{http.StatusForbidden, "changes are not allowed here: see admin.WithWrites"}
				}
				body, err := changeOf(r)
				if err != nil {
					return nil, err
				}
				return do(ctx, body)
			})
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			missing := &headerOnly{ResponseWriter: w}
			mux.ServeHTTP(missing, r)
			fail(w, missing.status, http.StatusText(missing.status))
			return
		}
		mux.ServeHTTP(w, r)
	}), nil
}

// headerOnly takes the status of a response, with the header, and no body: of the 404 and 405 of a mux, which are not in JSON.
type headerOnly struct {
	http.ResponseWriter
	status int
}

func (w *headerOnly) WriteHeader(status int)      { w.status = status }
func (w *headerOnly) Write(b []byte) (int, error) { return len(b), nil }

type handler struct {
	*config
	op *operator.Operator
}

// change is the body of a request that changes something.
type change struct {
	Key       string `json:"key"`
	For       string `json:"for"`
	Algorithm string `json:"algorithm"`
	Shards    int    `json:"shards"`
	Permits   bool   `json:"permits"`
	Table     string `json:"table"`
	Name      string `json:"name"`
	Limit     string `json:"limit"`
}

// problem is an error with the status that says it.
type problem struct {
	status int
	detail string
}

func (p problem) Error() string { return p.detail }

func bad(text string, args ...any) error {
	return problem{http.StatusBadRequest, fmt.Sprintf(text, args...)}
}

func (h *handler) check(ctx context.Context, _ *http.Request) (any, error) { return h.op.Check(ctx) }
func (h *handler) fleet(ctx context.Context, _ *http.Request) (any, error) { return h.op.Fleet(ctx) }

func (h *handler) top(ctx context.Context, r *http.Request) (any, error) {
	n, err := number(r, "n", 20, 1000)
	if err != nil {
		return nil, err
	}
	return h.op.Top(ctx, n, h.secret, r.URL.Query()["key"]...)
}

func (h *handler) inspect(ctx context.Context, r *http.Request) (any, error) {
	q := operator.Question{}
	var err error
	if q.Shards, err = number(r, "shards", 0, 64); err != nil {
		return nil, err
	}
	if text := r.URL.Query().Get("limit"); text != "" {
		if q.Limit, err = limiter.ParseLimit(text); err != nil {
			return nil, bad("%v", err)
		}
	}
	return h.op.Inspect(ctx, r.URL.Query().Get("key"), q)
}

func (h *handler) limits(ctx context.Context, r *http.Request) (any, error) {
	return h.op.Tables(ctx, r.URL.Query().Get("table"))
}

func (h *handler) block(ctx context.Context, c *change) (any, error) {
	d, err := time.ParseDuration(c.For)
	if err != nil {
		return nil, bad("for is %q: must be a time such as 90s or 1h30m", c.For)
	}
	return h.op.Block(ctx, c.Key, d, operator.BlockIn{Algorithm: c.Algorithm, Shards: c.Shards})
}

func (h *handler) unblock(ctx context.Context, c *change) (any, error) {
	return h.op.Unblock(ctx, c.Key)
}

func (h *handler) reset(ctx context.Context, c *change) (any, error) {
	return h.op.Reset(ctx, c.Key, c.Permits)
}

func (h *handler) setLimit(ctx context.Context, c *change) (any, error) {
	var l limiter.Limit
	if err := l.UnmarshalText([]byte(c.Limit)); err != nil {
		return nil, bad("%v", err)
	}
	if _, err := h.op.SetLimit(ctx, c.Table, c.Name, l); err != nil {
		return nil, err
	}
	return h.op.Tables(ctx, c.Table)
}

// number reads a whole number of the query.
func number(r *http.Request, name string, def, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, bad("%s is %.32q: must be a whole number from 0 to %d", name, text, most)
	}
	return n, nil
}

// changeOf reads the body of a request.
func changeOf(r *http.Request) (*change, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, problem{http.StatusUnsupportedMediaType, "the body must be application/json"}
	}
	c := new(change)
	dec := json.NewDecoder(io.LimitReader(r.Body, mostBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(c); err != nil {
		return nil, bad("the body cannot be read: %v", err)
	}
	return c, nil
}

// serve answers with what do returns.
func serve(w http.ResponseWriter, r *http.Request, do func(context.Context, *http.Request) (any, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	var result any
	err := error(problem{http.StatusBadRequest, fmt.Sprintf("the query is %d bytes: must be at most %d", len(r.URL.RawQuery), mostQuery)})
	if len(r.URL.RawQuery) <= mostQuery {
		result, err = do(ctx, r)
	}
	if err == nil {
		write(w, http.StatusOK, "application/json", result)
		return
	}
	status := http.StatusBadGateway
	if p, ok := errors.AsType[problem](err); ok {
		status = p.status
	} else if errors.Is(err, limiter.ErrInvalidConfig) || errors.Is(err, operator.ErrBadRequest) {
		status = http.StatusBadRequest
	}
	fail(w, status, err.Error())
}

// fail answers with a problem.
func fail(w http.ResponseWriter, status int, detail string) {
	write(w, status, "application/problem+json", map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail,
	})
}

func write(w http.ResponseWriter, status int, contentType string, body any) {
	text, err := json.Marshal(body)
	if err != nil { // of strings, numbers and times of this age: never
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	head := w.Header()
	head.Set("Content-Type", contentType)
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
