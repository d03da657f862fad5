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
		switch code {
		case "insufficient_quota", "billing_not_active", "enforced_spend_limit_reached":
			return Answer{Verdict: Final}
		}
	}
	return a
}

// text is a JSON string; anything else in its place is "".
type text string

// UnmarshalJSON never fails: a server may have another type there.
func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*t = text(s)
	}
	return nil
}
