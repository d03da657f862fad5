package retry

import "net/http"

// stainless is the generator of the SDKs of OpenAI, Anthropic and others, all of which obey
// this header of their servers.
func stainless(_ int, h http.Header) Verdict { return shouldRetry(h, "X-Should-Retry") }
