package retry

import (
	"net/http"
	"strings"
)

// dialects are what families of servers say beyond RFC 9110, one file each. A reader sees
// statuses from 400 on, and says Default where nothing is said in its dialect, and Final
// only where the server forbids another attempt. Waits in dialects are read by
// ParseRetryAfter. Examples of each are in testdata/dialects.
var dialects = [...]struct {
	name string
	read func(status int, h http.Header) Verdict
}{
	{"aws", aws},
	{"cloudflare", cloudflare},
	{"early data", earlyData},
	{"overload", overload},
	{"stainless", stainless},
	{"stripe", stripe},
}

// told reads a header that says whether to try again. "true" says nothing of whether the
// work was done: stripe and the like expect a key by which they tell repetitions.
func told(h http.Header, name string) Verdict {
	switch v := first(h, name); {
	case strings.EqualFold(v, "true"):
		return Failed
	case strings.EqualFold(v, "false"):
		return Final
	}
	return Default
}
