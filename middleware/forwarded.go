package middleware

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/holdfast-go/holdfast/internal/caller"
)

const (
	// maxHops is how many proxies are believed to be in a row.
	maxHops = 32
	// maxForwarded is the length beyond which a header is not looked into: none that a
	// proxy made is so long.
	maxForwarded = 8 << 10
)

// XForwardedFor is the address of the client behind proxies that you trust, from
// X-Forwarded-For: walked from the right, the first one that is no trusted proxy. What
// stands before it may be the client's invention and is not looked at. A connection
// that does not come from a trusted proxy has its own address, whatever its headers
// say; so has the last trusted proxy before something that is no address.
//
// Take it only when your proxies set or append this header; one that they pass on as
// it is would be the client's. IPv6 counts by its first 64 bits.
func XForwardedFor(trusted ...netip.Prefix) Key {
	return forwarded("X-Forwarded-For", xffHops, trusted)
}

// Forwarded is that from the header of RFC 7239. The choice is yours, because a client
// can send the one that your proxies don't set.
func Forwarded(trusted ...netip.Prefix) Key { return forwarded("Forwarded", rfc7239Hops, trusted) }

func forwarded(name string, hops func(line string, yield func(string) bool) bool, trusted []netip.Prefix) Key {
	if len(trusted) == 0 {
		return Key{err: configError("trusted proxies", 0, "must be at least 1; without proxies use RemoteIP")}
	}
	for i, p := range trusted {
		if !p.IsValid() {
			return Key{err: configError("trusted proxy", i, "must be a valid prefix")}
		}
	}
	trusts := func(a netip.Addr) bool {
		for _, p := range trusted {
			if p.Contains(a) {
				return true
			}
		}
		return false
	}
	return some(func(r *http.Request) string {
		addr := remote(r)
		if !addr.IsValid() || !trusts(addr) {
			return caller.IP(addr)
		}
		left := maxHops
		lines := r.Header[name]
		for i := len(lines) - 1; i >= 0; i-- {
			if len(lines[i]) > maxForwarded {
				break
			}
			more := hops(lines[i], func(hop string) bool {
				next, ok := hopAddr(hop)
				if left--; !ok || left < 0 {
					return false
				}
				addr = next
				return trusts(addr)
			})
			if !more {
				break
			}
		}
		return caller.IP(addr)
	})
}

// hopAddr reads what stands for a hop: an address, with a port or without, IPv6 with
// brackets or, where that is not ambiguous, without.
func hopAddr(s string) (netip.Addr, bool) {
	s = strings.TrimSpace(s)
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap().WithZone(""), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		if a, err := netip.ParseAddr(s[1 : len(s)-1]); err == nil {
			return a.Unmap().WithZone(""), true
		}
	}
	return netip.Addr{}, false
}

// xffHops yields the hops of a line from the right, until yield says that it is enough.
func xffHops(line string, yield func(string) bool) bool {
	for {
		i := strings.LastIndexByte(line, ',')
		if !yield(line[i+1:]) {
			return false
		}
		if i < 0 {
			return true
		}
		line = line[:i]
	}
}

// rfc7239Hops does that for Forwarded. A line that is malformed ends the walk.
func rfc7239Hops(line string, yield func(string) bool) bool {
	elements, ok := rfc7239(line)
	if !ok {
		return yield("")
	}
	for i := len(elements) - 1; i >= 0; i-- {
		if !yield(elements[i]) {
			return false
		}
	}
	return true
}

// rfc7239 returns the "for" of each element of a line; "" where there is none.
func rfc7239(line string) (hops []string, ok bool) {
	for rest := line; ; {
		var hop string
		for {
			rest = strings.TrimLeft(rest, " \t")
			i := strings.IndexByte(rest, '=')
			if i < 0 || !isToken(rest[:i]) {
				return nil, false
			}
			name := rest[:i]
			value, after, ok := paramValue(rest[i+1:])
			if !ok {
				return nil, false
			}
			if strings.EqualFold(name, "for") {
				if hop != "" {
					return nil, false
				}
				hop = value
			}
			rest = strings.TrimLeft(after, " \t")
			if !strings.HasPrefix(rest, ";") {
				break
			}
			rest = rest[1:]
		}
		hops = append(hops, hop)
		if rest == "" {
			return hops, true
		}
		if rest[0] != ',' {
			return nil, false
		}
		rest = rest[1:]
	}
}

// paramValue reads a token or a quoted string from the begin of s.
func paramValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, " \t;,")
		if end < 0 {
			end = len(s)
		}
		return s[:end], s[end:], end > 0
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], true
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}
