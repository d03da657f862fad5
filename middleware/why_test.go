package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/limiter"
	"github.com/holdfast-go/holdfast/middleware"
)

// TestWhyRejected: the body says which rule a request breaks.
func TestWhyRejected(t *testing.T) {
	lim, err := limiter.NewLocal(limiter.FixedWindow(limiter.PerHour(10)))
	if err != nil {
		t.Fatal(err)
	}
	limit, err := middleware.New(lim, middleware.Header("X-User"), middleware.WithCost(func(r *http.Request) int {
		cost, _ := strconv.Atoi(r.Header.Get("X-Cost"))
		return cost
	}))
	if err != nil {
		t.Fatal(err)
	}
	handler := limit(http.NotFoundHandler())
	for _, c := range []struct {
		user, cost string
		want       string
	}{
		{"", "1", "the request has no rate-limit key"},
		{"u", "11", "the request costs more than the limit can ever admit"},
		{"u", "-1", "the cost of the request is negative"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Cost", c.cost)
		if c.user != "" {
			r.Header.Set("X-User", c.user)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"detail":"`+c.want+`"`) {
			t.Errorf("%+v: %d, %s", c, w.Code, w.Body)
		}
	}
}
