package retry

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/enum"
)

// Provider is a server that rejects requests in ways that only the body of a response
// shows, also of a success. Its bodies are read only where the user asks for it. The zero
// value is none.
type Provider uint8

const (
	// GitHub rejects by secondary limits with a 403 or 429 whose body alone says so, and
	// in GraphQL with a 200. Read are responses with X-GitHub-Request-Id.
	GitHub Provider = iota + 1
	// Shopify rejects GraphQL requests with a 200 and says in the body how much of the
	// query's cost was there. Read are responses with X-Shopify-API-Version or X-ShopId.
	Shopify
	// GraphQL is any server that rejects with a code such as THROTTLED or RATE_LIMITED.
	// Read are responses of the media type application/graphql-response+json, and of
	// JSON where the path of the request ends in graphql or graphql.json.
	GraphQL
)

var providerNames = [...]string{"none", GitHub: "github", Shopify: "shopify", GraphQL: "graphql"}

// String returns the provider in one lower-case word.
func (p Provider) String() string { return enum.Name(providerNames[:], p, "provider") }

// MarshalText returns what String does, for JSON and logs.
func (p Provider) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// MaxBody is how long a body that is read may be. A longer one says nothing.
const MaxBody = 64 << 10

// bodies are the readers of bodies, in this order. A reader whose provider is 0 is for all
// servers. wants sees status and headers; path is that of the request. read returns a,
// or what the body makes of it.
var bodies = [...]struct {
	of    Provider
	wants func(status int, h http.Header, path string) bool
	read  func(a Answer, status int, body []byte) Answer
}{
	{0, exhaustedWants, exhausted},
	{GitHub, githubWants, secondaryLimit},
	{GitHub, githubWants, graphQL},
	{Shopify, shopifyWants, graphQL},
	{GraphQL, graphQLWants, graphQL},
}

// WantsBody reports whether [ParseBody] could read more out of a response than
// [ParseAnswer], by its status and headers and the path of its request. Without providers
// that is so for a 429 in JSON, which may be one that never ends.
func WantsBody(status int, h http.Header, path string, providers ...Provider) bool {
	for _, b := range bodies {
		if enabled(b.of, providers) && b.wants(status, h, path) {
			return (status >= 400 || status == http.StatusOK) && isJSON(h)
		}
	}
	return false
}

// ParseBody returns what [ParseAnswer] says of a response together with its body, which
// must be whole:
//
//   - a 429 for an account without credit, which does not end by waiting, is Final and
//     names no wait (OpenAI's insufficient_quota and billing_not_active, Anthropic's
//     enforced_spend_limit_reached);
//   - what the providers say, such as a rejection in a 200.
//
// Source is then "body". A server that forbids another attempt by a header is obeyed.
// A body that is not as expected changes nothing.
func ParseBody(a Answer, status int, h http.Header, path string, body []byte, providers ...Provider) Answer {
	if len(body) > MaxBody || !WantsBody(status, h, path, providers...) || inDialect(status, h) == Final {
		return a
	}
	for _, b := range bodies {
		if enabled(b.of, providers) && b.wants(status, h, path) {
			if got := b.read(a, status, body); got != a {
				return got
			}
		}
	}
	return a
}

func enabled(p Provider, providers []Provider) bool {
	return p == 0 || slices.Contains(providers, p)
}

// isJSON reports whether a response is in a media type of JSON.
func isJSON(h http.Header) bool {
	t := mediaType(h)
	return t == "application/json" || strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json")
}

func mediaType(h http.Header) string {
	t, _, err := mime.ParseMediaType(first(h, "Content-Type"))
	if err != nil {
		return ""
	}
	return t
}
