package main

import (
	"net/http"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/holdfast-go/holdfast/httpclient"
	"github.com/holdfast-go/holdfast/limiter"
)

// contenders are the transports that are compared, each made around a base. The
// first is the base itself. Limits are such that nothing is ever limited.
var contenders = []struct {
	name string
	wrap func(http.RoundTripper) (http.RoundTripper, error)
}{
	{"`http.Transport`", func(b http.RoundTripper) (http.RoundTripper, error) { return b, nil }},
	{"Holdfast, retries and budget", func(b http.RoundTripper) (http.RoundTripper, error) {
		return httpclient.New(b, httpclient.WithoutThrottle())
	}},
	{"Holdfast, and throttle (the default)", func(b http.RoundTripper) (http.RoundTripper, error) {
		return httpclient.New(b)
	}},
	{"Holdfast, and a local limiter", func(b http.RoundTripper) (http.RoundTripper, error) {
		lim, err := limiter.NewLocal(limiter.TokenBucket(limiter.PerSecond(1e6), 1e9))
		if err != nil {
			return nil, err
		}
		return httpclient.New(b, httpclient.WithLimiter(lim))
	}},
	{"go-retryablehttp, retries", func(b http.RoundTripper) (http.RoundTripper, error) {
		c := retryablehttp.NewClient()
		c.Logger = nil
		c.HTTPClient = &http.Client{Transport: b}
		return &retryablehttp.RoundTripper{Client: c}, nil
	}},
	{"failsafehttp, retries", func(b http.RoundTripper) (http.RoundTripper, error) {
		return failsafehttp.NewRoundTripper(b, failsafehttp.NewRetryPolicyBuilder().Build()), nil
	}},
	{"failsafehttp, and breaker", func(b http.RoundTripper) (http.RoundTripper, error) {
		cb := circuitbreaker.NewBuilder[*http.Response]().
			WithFailureRateThreshold(0.5, 20, 30*time.Second).WithDelay(30 * time.Second).Build()
		return failsafehttp.NewRoundTripper(b, failsafehttp.NewRetryPolicyBuilder().Build(), cb), nil
	}},
}
