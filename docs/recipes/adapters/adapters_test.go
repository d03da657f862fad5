package adapters_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/hibiken/asynq"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"

	"github.com/holdfast-go/holdfast/docs/recipes/adapters"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/limiter/limitertest"
	"github.com/holdfast-go/holdfast/middleware"
)

// limit admits the first request and denies the second.
func limit(t *testing.T) func(http.Handler) http.Handler {
	t.Helper()
	lim := &limitertest.Fake{Answer: func(c limitertest.Call) (limiter.Result, error) {
		if c.Key == "" {
			t.Error("no key")
		}
		if c.Number == 1 {
			return limitertest.Admitted(), nil
		}
		return limitertest.Denied(2 * time.Second), nil
	}}
	m, err := middleware.New(lim, middleware.RemoteIP())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRouters(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	served := 0
	routers := map[string]func(*http.Request) *http.Response{}
	handle := func(name string, h http.Handler) {
		routers[name] = func(r *http.Request) *http.Response {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			return rec.Result()
		}
	}
	g := gin.New()
	g.Use(adapters.Gin(limit(t)))
	g.GET("/", func(c *gin.Context) { served++; c.String(http.StatusOK, "hello") })
	handle("gin", g)
	e := echo.New()
	e.Use(adapters.Echo(limit(t)))
	e.GET("/", func(c echo.Context) error { served++; return c.String(http.StatusOK, "hello") })
	handle("echo", e)
	f := fiber.New()
	f.Use(adapters.Fiber(limit(t)))
	f.Get("/", func(c *fiber.Ctx) error { served++; return c.SendString("hello") })
	routers["fiber"] = func(r *http.Request) *http.Response {
		resp, err := f.Test(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for name, do := range routers {
		t.Run(name, func(t *testing.T) {
			served = 0
			for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
				resp := do(httptest.NewRequest(http.MethodGet, "/", nil))
				if resp.StatusCode != want || (want == http.StatusTooManyRequests) != (resp.Header.Get("Retry-After") == "2") {
					t.Errorf("%d %v, want %d", resp.StatusCode, resp.Header, want)
				}
				resp.Body.Close()
			}
			if served != 1 {
				t.Errorf("served %d times, want once", served)
			}
		})
	}
}

// TestRoutersCount: a middleware counts the statuses of the router's handlers, also of one that returns an error.
func TestRoutersCount(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	counting := func() func(http.Handler) http.Handler {
		lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.Per(1, 300*time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lim.Close() })
		m, err := middleware.New(lim, middleware.RemoteIP(), middleware.WithCounted(func(status int) bool { return status == http.StatusUnauthorized }))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	g := gin.New()
	g.Use(adapters.Gin(counting()))
	g.GET("/right", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	g.GET("/wrong", func(c *gin.Context) { c.AbortWithStatus(http.StatusUnauthorized) })
	e := echo.New()
	e.Use(adapters.Echo(counting()))
	e.GET("/right", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })
	e.GET("/wrong", func(echo.Context) error { return echo.ErrUnauthorized })
	for name, router := range map[string]http.Handler{"gin": g, "echo": e} {
		for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusUnauthorized, http.StatusTooManyRequests} {
			path := "/right"
			if want == http.StatusUnauthorized {
				path = "/wrong"
			}
			rec := httptest.NewRecorder()
			router.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
			if rec.Code != want {
				t.Errorf("%s: request %d: %d, want %d", name, i, rec.Code, want)
			}
		}
	}
}

// TestAsynq: tasks that are denied come back, and none of their retries is spent: each has one, and
// some are denied more than once.
func TestAsynq(t *testing.T) {
	redistest.Require(t)
	srv := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	lim, err := limiter.New(rdb, limiter.TokenBucket(limiter.PerSecond(5), 1))
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	queue := asynq.RedisClientOpt{Addr: srv.Addr()}
	client := asynq.NewClient(queue)
	defer client.Close()
	const tasks = 4
	for range tasks {
		if _, err := client.Enqueue(asynq.NewTask("mail", nil), asynq.MaxRetry(1)); err != nil {
			t.Fatal(err)
		}
	}
	var done atomic.Int64
	server := asynq.NewServer(queue, adapters.AsynqConfig(asynq.Config{Concurrency: tasks, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: 100 * time.Millisecond}))
	if err := server.Start(adapters.Asynq(lim, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { done.Add(1); return nil }))); err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	redistest.Until(t, "all tasks are done", func() bool { return done.Load() == tasks })
}

func TestRiver(t *testing.T) {
	done := 0
	w := &adapters.ReportWorker{
		Limiter: &limitertest.Fake{Answer: func(c limitertest.Call) (limiter.Result, error) {
			if c.Key == "big" {
				return limitertest.Denied(time.Minute), nil
			}
			return limitertest.Admitted(), nil
		}},
		Do: func(context.Context, adapters.Report) error { done++; return nil },
	}
	if err := w.Work(t.Context(), &river.Job[adapters.Report]{Args: adapters.Report{Tenant: "small"}}); err != nil || done != 1 {
		t.Errorf("%v, %d done", err, done)
	}
	var snooze *river.JobSnoozeError
	if err := w.Work(t.Context(), &river.Job[adapters.Report]{Args: adapters.Report{Tenant: "big"}}); !errors.As(err, &snooze) || snooze.Duration != time.Minute || done != 1 {
		t.Errorf("%v, %d done", err, done)
	}
}
