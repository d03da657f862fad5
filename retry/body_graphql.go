package retry

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"time"
)

func shopifyWants(status int, h http.Header, _ string) bool {
	return status == http.StatusOK && (first(h, "X-Shopify-Api-Version") != "" || first(h, "X-Shopid") != "")
}

func graphQLWants(_ int, h http.Header, path string) bool {
	return mediaType(h) == "application/graphql-response+json" ||
		strings.HasSuffix(path, "graphql") || strings.HasSuffix(path, "graphql.json")
}

// graphQLCodes are the codes by which servers reject a query.
var graphQLCodes = map[string]bool{
	"THROTTLED": true, "RATE_LIMITED": true, "RATELIMITED": true, "RATE_LIMIT_EXCEEDED": true,
	"TOO_MANY_REQUESTS": true, "COMPLEXITY_BUDGET_EXHAUSTED": true,
}

// graphQL reads the errors of a GraphQL response. Without data the execution did not begin
// (section 7.1 of the specification); where data is null, a part of a mutation may have been
// done; and data that is there is kept for the caller.
func graphQL(a Answer, status int, body []byte) Answer {
	if status >= 400 && a.Verdict == Rejected {
		return a
	}
	var b struct {
		Data   json.RawMessage `json:"data"`
		Errors []struct {
			Type       text `json:"type"` // of GitHub
			Message    text `json:"message"`
			Extensions struct {
				Code    text   `json:"code"`
				Retry   amount `json:"retry_in_seconds"` // of Monday
				RetryIn amount `json:"retryAfter"`
			} `json:"extensions"`
		} `json:"errors"`
		Extensions struct {
			Cost struct {
				Requested amount `json:"requestedQueryCost"`
				Status    struct {
					Available amount `json:"currentlyAvailable"`
					Rate      amount `json:"restoreRate"`
				} `json:"throttleStatus"`
			} `json:"cost"`
		} `json:"extensions"`
	}
	if json.Unmarshal(body, &b) != nil {
		return a
	}
	verdict := Rejected
	switch {
	case len(b.Data) == 0:
	case string(b.Data) == "null":
		verdict = Failed
	default:
		return a
	}
	cost := b.Extensions.Cost
	for _, e := range b.Errors {
		throttled := e.Message.v == "Throttled" && cost.Status.Rate.v > 0 // of Shopify, before it had codes
		if !graphQLCodes[e.Extensions.Code.v] && !graphQLCodes[e.Type.v] && !throttled {
			continue
		}
		a.Verdict = verdict
		if a.Asked { // the headers are more exact
			return a
		}
		d := secondsOf(max(e.Extensions.Retry.v, e.Extensions.RetryIn.v))
		if rate := cost.Status.Rate.v; rate > 0 {
			d = max(d, secondsOf((cost.Requested.v-cost.Status.Available.v)/rate))
		}
		if d > 0 {
			a.Asked, a.Hint = true, Hint{d, -1, "body"}
		}
		return a
	}
	return a
}

// secondsOf returns a duration of whole milliseconds, rounded up; 0 of what is no time.
func secondsOf(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	if s >= float64(longest/time.Second) {
		return longest
	}
	return time.Duration(math.Ceil(1000*s)) * time.Millisecond
}
