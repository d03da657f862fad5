package main

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// secure sets the headers that keep a page to itself.
func secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// ownHost rejects requests for names that are not this machine's: a foreign name that
// resolves to it would make the page same-origin with the owner of the name.
func ownHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !isLoopback(strings.Trim(host, "[]")) {
			broken(http.StatusMisdirectedRequest, "Host", quoted(r.Host), "must be localhost or a loopback address").write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// sameSite rejects what pages of other sites make a browser send, reads among them: a
// stream of events takes a place.
func sameSite(next http.Handler) http.Handler {
	refused := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin == "" {
			origin = r.Header.Get("Sec-Fetch-Site")
		}
		broken(http.StatusForbidden, "Origin", quoted(origin), "must be the page's own").write(w)
	})
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(refused)
	writes := guard.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "same-origin", "none":
			writes.ServeHTTP(w, r)
		default:
			refused(w, r)
		}
	})
}
