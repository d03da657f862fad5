package middleware

import (
	"log"
	"net/http"
	"net/http/httputil"
	"strconv"
)

// ReverseProxy is p behind a middleware, where the upstream may have limits of its own. By
// itself p adds the upstream's headers to those of the middleware, so that X-RateLimit-Limit,
// -Remaining and -Reset, which are about one limit, would be there twice; so would those of
// RateLimitDraft6. With ReverseProxy they are there once, for the limit that denied, or else for the one that has less left.
// RateLimit is a list, and has both. They are there also after an early hint (103) of the
// upstream, where by itself p forgets what was set before. p is not changed.
func ReverseProxy(p *httputil.ReverseProxy) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before := w.Header().Clone()
		one := *p
		one.ModifyResponse = func(resp *http.Response) error {
			putBack(w.Header(), before)
			if p.ModifyResponse != nil {
				if err := p.ModifyResponse(resp); err != nil {
					return err
				}
			}
			keepOne(w.Header(), resp)
			return nil
		}
		one.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) {
			putBack(w.Header(), before)
			if p.ErrorHandler != nil {
				p.ErrorHandler(w, r, err)
				return
			}
			badGateway(w, p.ErrorLog, err)
		}
		one.ServeHTTP(w, r)
	})
}

// putBack sets what is missing of the headers that were there before.
func putBack(h, before http.Header) {
	for name, v := range before {
		if _, ok := h[name]; !ok {
			h[name] = v
		}
	}
}

// badGateway is what httputil.ReverseProxy does at an error by itself.
func badGateway(w http.ResponseWriter, to *log.Logger, err error) {
	if to == nil {
		to = log.Default()
	}
	to.Printf("http: proxy error: %v", err)
	w.WriteHeader(http.StatusBadGateway)
}

// keepOne drops ours or those of the upstream, where both have the headers of one limit.
func keepOne(ours http.Header, resp *http.Response) {
	theirs := resp.Header
	for _, of := range &triples {
		if len(ours[of.remaining]) == 0 || len(theirs[of.remaining]) == 0 {
			continue
		}
		n, err := strconv.Atoi(theirs[of.remaining][0])
		drop := theirs
		if resp.StatusCode == http.StatusTooManyRequests || err == nil && tighter(ours[of.remaining], n) {
			drop = ours
		}
		for _, name := range []string{of.limit, of.remaining, of.reset} {
			delete(drop, name)
		}
	}
}
