package retry

import "net/http"

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
