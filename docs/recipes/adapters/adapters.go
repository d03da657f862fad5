// Package adapters shows how a middleware for net/http serves other routers, and how workers of
// queues let jobs wait that a limit denies.
package adapters

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/labstack/echo/v4"
)

// Gin is for router.Use(adapters.Gin(limit)), where limit comes from middleware.New.
func Gin(limit func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		admitted := false
		limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			admitted, c.Request = true, r
			c.Next()
			w.WriteHeader(c.Writer.Status()) // for WithCounted: gin has its own writer, which has this status already
		})).ServeHTTP(c.Writer, c.Request)
		if !admitted {
			c.Abort()
		}
	}
}

// Echo is for e.Use(adapters.Echo(limit)).
func Echo(limit func(http.Handler) http.Handler) echo.MiddlewareFunc {
	wrapped := echo.WrapMiddleware(limit)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return wrapped(func(c echo.Context) error {
			err := next(c)
			if err != nil {
				c.Error(err) // writes the status now, for WithCounted; echo itself would do so later
			}
			return err
		})
	}
}

// Fiber is for app.Use(adapters.Fiber(limit)). Fiber copies the request for it; the address that
// middleware.RemoteIP reads is that of the connection. Fiber serves the request when the middleware
// has ended, so WithCounted and WithConcurrency have no effect: use limiter.CountFailed and a
// semaphore in the handler.
func Fiber(limit func(http.Handler) http.Handler) fiber.Handler { return adaptor.HTTPMiddleware(limit) }
