package middleware

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/inbound"
)

const (
	// maxHops is the most proxies that a request may have passed.
	maxHops = 32
	// maxForwarded is how much of a header line is read, from its end: the hops
	// that are trusted never need more.
	maxForwarded = 8 << 10
)

// Proxies says which connections come from proxies that you trust. The zero value trusts
// none and is not usable.
type Proxies struct {
	// Trusted are the addresses of the proxies. A prefix of IPv4 may be written as one
	// of IPv6, such as ::ffff:10.0.0.0/104.
	Trusted []netip.Prefix
	// UnixSocket also trusts a connection without an IP address, as a proxy on the same
	// machine makes over a Unix socket: a program that may write to the socket may say who the
	// client is. By default such a connection is not trusted, and has no key: every
	// request gets what WithMissingKey says, which is 400 by default.
	UnixSocket bool
}

// XForwardedFor is the address of the client behind proxies that you trust, from
// X-Forwarded-For: walked from the right, the first one that is no trusted proxy. What
// stands before it may be the client's invention and is not read. A connection
// that does not come from a trusted proxy has its own address, whatever its headers
// say; so has the last trusted proxy before something that is no address.
//
// Take it only when your proxies set or append this header; one that they pass on as
// it is would be the client's. IPv6 counts by its first 64 bits. Behind a Unix socket see
// [Proxies].
func XForwardedFor(trusted ...netip.Prefix) Key { return Proxies{Trusted: trusted}.XForwardedFor() }

// Forwarded is as XForwardedFor, but reads the header Forwarded of RFC 7239. Take the one of
// the two headers that your proxies set: a client can send the other one itself.
func Forwarded(trusted ...netip.Prefix) Key { return Proxies{Trusted: trusted}.Forwarded() }

// XForwardedFor is the function of that name.
func (p Proxies) XForwardedFor() Key { return p.key(&xForwardedFor) }

// Forwarded is the function of that name.
func (p Proxies) Forwarded() Key { return p.key(&forwarded) }

func (p Proxies) key(s *syntax) Key {
	if len(p.Trusted) == 0 && !p.UnixSocket {
		return invalid("trusted proxies", 0, "must be at least 1; without proxies use RemoteIP")
	}
	p.Trusted = slices.Clone(p.Trusted)
	for i, t := range p.Trusted {
		mapped := t.Addr().Is4In6()
		if !t.IsValid() || mapped && t.Bits() < 96 {
			return invalid("trusted proxy", i, "must be a valid prefix, of at least 96 bits where it is an IPv4 one in IPv6")
		}
		if mapped {
			p.Trusted[i] = netip.PrefixFrom(t.Addr().Unmap(), t.Bits()-96)
		}
	}
	return some(func(r *http.Request) string { return inbound.IP(p.client(r, s)) })
}

func (p *Proxies) trusts(a netip.Addr) bool {
	if !a.IsValid() {
		return p.UnixSocket
	}
	return slices.ContainsFunc(p.Trusted, func(t netip.Prefix) bool { return t.Contains(a) })
}

// client walks from the connection to the client, from the right to the left, as far as
// every hop is trusted. The zero Addr is that there is none.
func (p *Proxies) client(r *http.Request, s *syntax) netip.Addr {
	addr, left := remote(r), maxHops
	if !p.trusts(addr) {
		return addr
	}
	for _, line := range slices.Backward(r.Header[s.name]) {
		cut := len(line) > maxForwarded
		if cut {
			line = line[len(line)-maxForwarded:]
		}
		for more := true; more; {
			comma := s.lastComma(line)
			hop := strings.Trim(line[comma+1:], " \t")
			if more = comma >= 0; more {
				line = line[:comma]
			} else if cut {
				return addr // of this one there is only the end
			}
			if hop == "" && s.skipsEmpty {
				continue
			}
			next, ok := s.addr(hop)
			if left--; !ok || left < 0 {
				return addr
			}
			if addr = next; !p.trusts(addr) {
				return addr
			}
		}
	}
	return addr
}

// syntax is how a header lists hops.
type syntax struct {
	name      string
	lastComma func(line string) int // -1 is none
	// skipsEmpty: RFC 9110 section 5.6.1 has empty elements ignored. X-Forwarded-For has
	// no standard, and a proxy that has no address to append may append an empty one:
	// what stands before it is then the client's.
	skipsEmpty bool
	addr       func(hop string) (netip.Addr, bool)
}

var (
	xForwardedFor = syntax{"X-Forwarded-For", func(line string) int { return strings.LastIndexByte(line, ',') }, false, hopAddr}
	forwarded     = syntax{"Forwarded", lastUnquotedComma, true, rfc7239For}
)

// hopAddr reads what stands for a hop: an address, with a port or without, IPv6 with
// brackets or, where that is not ambiguous, without.
func hopAddr(s string) (netip.Addr, bool) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		a, err := netip.ParseAddr(s[1 : len(s)-1])
		return a.Unmap().WithZone(""), err == nil
	}
	a := inbound.Addr(s)
	return a, a.IsValid()
}

// lastUnquotedComma finds the comma before the last element of a list. It reads from
// the right, so that a quote that a client has left open does not hide what a proxy has
// added after it.
func lastUnquotedComma(line string) int {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch {
		case line[i] == ',' && !quoted:
			return i
		case line[i] == '"' && !escaped(line[:i]):
			quoted = !quoted
		}
	}
	return -1
}

// escaped reports whether what follows s in a quoted string is escaped.
func escaped(s string) bool {
	return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1
}

// rfc7239For returns the address in the "for" of an element of Forwarded. It must be
// well-formed as a whole; pairs may be empty.
func rfc7239For(element string) (netip.Addr, bool) {
	hop, found := "", false
	for rest, more := element, true; more; {
		rest = strings.TrimLeft(rest, " \t")
		if after, empty := strings.CutPrefix(rest, ";"); empty {
			rest = after
			continue
		}
		if rest == "" {
			break
		}
		i := strings.IndexByte(rest, '=')
		if i < 0 || !isToken(rest[:i]) {
			return netip.Addr{}, false
		}
		name := rest[:i]
		value, after, ok := paramValue(rest[i+1:])
		if !ok {
			return netip.Addr{}, false
		}
		if strings.EqualFold(name, "for") {
			if found {
				return netip.Addr{}, false
			}
			hop, found = value, true
		}
		if rest, more = strings.CutPrefix(strings.TrimLeft(after, " \t"), ";"); !more && rest != "" {
			return netip.Addr{}, false
		}
	}
	return hopAddr(hop)
}

// paramValue reads a token, or what is taken for one, or a quoted string from the begin
// of s.
func paramValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, " \t;,")
		if end < 0 {
			end = len(s)
		}
		return s[:end], s[end:], end > 0 && !strings.Contains(s[:end], `"`)
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
