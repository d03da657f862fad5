package retry

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// shopifyCalls is the level of a leaky bucket and its size, such as 39/40, for the REST API
// of one shop.
const shopifyCalls = "X-Shopify-Shop-Api-Call-Limit"

// shopifyEmpties is how long the bucket takes to empty, whatever its size is.
const shopifyEmpties = 20 * time.Second

// shopifyQuota reads the bucket. The wait is the time in which it leaks one call.
func shopifyQuota(h http.Header) (Hint, bool) {
	used, size, ok := strings.Cut(first(h, shopifyCalls), "/")
	if !ok || !digits(used) || !digits(size) {
		return Hint{}, false
	}
	n, err := strconv.ParseInt(size, 10, 32)
	u, err2 := strconv.ParseInt(used, 10, 32)
	if err != nil || err2 != nil || n == 0 {
		return Hint{}, false
	}
	return Hint{shopifyEmpties / time.Duration(n), max(0, n-u), shopifyCalls}, true
}

func shopifyScopes(names []string, h http.Header) []string {
	if _, ok := shopifyQuota(h); ok {
		return append(names, "shopify/rest")
	}
	return names
}

func shopifyWait(status int, h http.Header, _ string) string {
	if q, ok := shopifyQuota(h); ok && (q.Remaining == 0 || status == http.StatusTooManyRequests) {
		return "shopify/rest"
	}
	return ""
}
