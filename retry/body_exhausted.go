package retry

import (
	"encoding/json"
	"net/http"
)

// A 429 may be about money: no wait mends it, and it is no reason to stop the requests of
// other accounts to the same host.
func exhaustedWants(status int, _ http.Header, _ string) bool {
	return status == http.StatusTooManyRequests
}

func exhausted(a Answer, _ int, body []byte) Answer {
	var b struct {
		Error struct {
			Type    text `json:"type"`
			Code    text `json:"code"`
			Details struct {
				Code text `json:"error_code"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &b) != nil {
		return a
	}
	for _, code := range []text{b.Error.Code, b.Error.Type, b.Error.Details.Code} {
		switch code.v {
		case "insufficient_quota", "billing_not_active", "enforced_spend_limit_reached":
			return Answer{Verdict: Final}
		}
	}
	return a
}

// lenient is a JSON value of a type; the zero value stands for one of another type, which a
// server may have in its place.
type lenient[T any] struct{ v T }

// UnmarshalJSON never fails.
func (l *lenient[T]) UnmarshalJSON(data []byte) error {
	_ = json.Unmarshal(data, &l.v) // which leaves the zero value
	return nil
}

type (
	text   = lenient[string]
	amount = lenient[float64]
)
