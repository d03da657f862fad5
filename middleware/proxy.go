package middleware

import (
	"net/http"
	"net/http/httputil"
	"strconv"
)

// xRateLimit are the older headers, which are about one limit.
var xRateLimit = [...]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}

// ReverseProxy is p behind a middleware, where the upstream may have limits of its own. By
// itself p adds the upstream's headers to those of the middleware, so that X-RateLimit-Limit,
// -Remaining and -Reset, which are about one limit, would be there twice. With ReverseProxy
// they are there once, for the limit that denied, or else for the one that has less left.
// RateLimit is a list, and has both. p is not changed.
func ReverseProxy(p *httputil.ReverseProxy) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := *p
		one.ModifyResponse = func(resp *http.Response) error {
			if p.ModifyResponse != nil {
				if err := p.ModifyResponse(resp); err != nil {
					return err
				}
			}
			keepOne(w.Header(), resp)
			return nil
		}
		one.ServeHTTP(w, r)
	})
}

// keepOne drops our X-RateLimit headers or those of the upstream, where both are there.
func keepOne(ours http.Header, resp *http.Response) {
	theirs := resp.Header
	if len(ours["X-Ratelimit-Remaining"]) == 0 || len(theirs["X-Ratelimit-Remaining"]) == 0 {
		return
	}
	n, err := strconv.Atoi(theirs["X-Ratelimit-Remaining"][0])
	drop := theirs
	if resp.StatusCode == http.StatusTooManyRequests || err == nil && tighter(ours["X-Ratelimit-Remaining"], n) {
		drop = ours
	}
	for _, name := range xRateLimit {
		delete(drop, name)
	}
}
