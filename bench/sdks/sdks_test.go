package sdks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/go-resty/resty/v2"
	"github.com/google/go-github/v75/github"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stripe/stripe-go/v84"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
	googleoption "google.golang.org/api/option"
	"google.golang.org/api/storage/v1"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-go/holdfast/httpclient"
)

// api is a server in memory, so that waits take no time in a bubble.
type api struct {
	status int
	header map[string]string
	sent   int
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	a.sent++
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	for name, v := range a.header {
		w.Header().Set(name, v)
	}
	w.WriteHeader(a.status)
	fmt.Fprint(w, `{"error":{"message":"no","type":"api_error"}}`)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

const endpoint = "http://api.test"

// The SDKs. Each makes a new client on rt, and one call.

func openaiGo(ctx context.Context, rt http.RoundTripper) error {
	c := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: rt}), option.WithAPIKey("k"), option.WithBaseURL(endpoint))
	_, err := c.Models.Get(ctx, "m")
	return err
}

func openaiGoOff(ctx context.Context, rt http.RoundTripper) error {
	ctx = httpclient.WithCall(ctx, httpclient.Call{Attempts: 3})
	c := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: rt}), option.WithAPIKey("k"), option.WithBaseURL(endpoint), option.WithMaxRetries(0))
	_, err := c.Models.Get(ctx, "m")
	return err
}

func anthropicGo(ctx context.Context, rt http.RoundTripper) error {
	c := anthropic.NewClient(anthropicoption.WithHTTPClient(&http.Client{Transport: rt}), anthropicoption.WithAPIKey("k"), anthropicoption.WithBaseURL(endpoint))
	_, err := c.Models.Get(ctx, "m", anthropic.ModelGetParams{})
	return err
}

func anthropicGoOff(ctx context.Context, rt http.RoundTripper) error {
	ctx = httpclient.WithCall(ctx, httpclient.Call{Attempts: 3})
	c := anthropic.NewClient(anthropicoption.WithHTTPClient(&http.Client{Transport: rt}), anthropicoption.WithAPIKey("k"), anthropicoption.WithBaseURL(endpoint), anthropicoption.WithMaxRetries(0))
	_, err := c.Models.Get(ctx, "m", anthropic.ModelGetParams{})
	return err
}

func stripeGo(ctx context.Context, rt http.RoundTripper) error {
	b := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		HTTPClient: &http.Client{Transport: rt}, URL: stripe.String(endpoint), LeveledLogger: &stripe.LeveledLogger{},
	})
	_, err := stripe.NewClient("sk_test_k", stripe.WithBackends(&stripe.Backends{API: b})).V1Customers.Retrieve(ctx, "cus_1", nil)
	return err
}

func awsS3(ctx context.Context, rt http.RoundTripper) error {
	c := s3.New(s3.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(endpoint), UsePathStyle: true, HTTPClient: &http.Client{Transport: rt},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
		}),
	})
	_, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
	return err
}

func goGitHub(ctx context.Context, rt http.RoundTripper) error {
	c := github.NewClient(&http.Client{Transport: rt})
	c.BaseURL = &url.URL{Scheme: "http", Host: "api.test", Path: "/"}
	_, _, err := c.Repositories.Get(ctx, "a", "b")
	return err
}

func restyGo(ctx context.Context, rt http.RoundTripper) error {
	resp, err := resty.NewWithClient(&http.Client{Transport: rt}).R().SetContext(ctx).Get(endpoint)
	if err == nil && resp.IsError() {
		err = statusError(resp.StatusCode())
	}
	return err
}

func retryableHTTP(ctx context.Context, rt http.RoundTripper) error { return retryable(ctx, rt, 4) }

func retryableHTTPOff(ctx context.Context, rt http.RoundTripper) error { return retryable(ctx, rt, 0) }

func retryable(ctx context.Context, rt http.RoundTripper, retries int) error {
	c := retryablehttp.NewClient()
	c.HTTPClient, c.Logger, c.RetryMax = &http.Client{Transport: rt}, nil, retries
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	r, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(r)
	return statusOf(resp, err)
}

func oauth2Go(ctx context.Context, rt http.RoundTripper) error {
	c := &http.Client{Transport: &oauth2.Transport{Base: rt, Source: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "t"})}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(r)
	return statusOf(resp, err)
}

func connectGo(ctx context.Context, rt http.RoundTripper) error {
	c := connect.NewClient[emptypb.Empty, emptypb.Empty](&http.Client{Transport: rt}, endpoint+"/a.B/C", connect.WithIdempotency(connect.IdempotencyNoSideEffects), connect.WithHTTPGet())
	_, err := c.CallUnary(ctx, connect.NewRequest(&emptypb.Empty{}))
	return err
}

func googleStorage(ctx context.Context, rt http.RoundTripper) error {
	s, err := storage.NewService(ctx, googleoption.WithHTTPClient(&http.Client{Transport: rt}), googleoption.WithEndpoint(endpoint))
	if err != nil {
		return err
	}
	_, err = s.Buckets.Get("b").Context(ctx).Do()
	return err
}

// statusError is what clients get that have responses and no errors.
type statusError int

func (e statusError) Error() string { return http.StatusText(int(e)) }

func statusOf(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode >= 400 {
		return statusError(resp.StatusCode)
	}
	return nil
}

// all are they, with how many requests each sends to a server that always fails, and how
// the status is found in its own error.
var all = map[string]struct {
	call   func(context.Context, http.RoundTripper) error
	sent   int
	status func(error) (int, bool)
}{
	"openai-go":                         {openaiGo, 3, as(func(e *openai.Error) int { return e.StatusCode })},
	"openai-go, own retries off":        {openaiGoOff, 3, as(func(e *openai.Error) int { return e.StatusCode })},
	"anthropic-sdk-go":                  {anthropicGo, 3, as(func(e *anthropic.Error) int { return e.StatusCode })},
	"anthropic-sdk-go, own retries off": {anthropicGoOff, 3, as(func(e *anthropic.Error) int { return e.StatusCode })},
	"stripe-go":                         {stripeGo, 1, as(func(e *stripe.Error) int { return e.HTTPStatusCode })},
	"aws-sdk-go-v2": {awsS3, 3, as(func(e interface {
		error
		HTTPStatusCode() int
	}) int {
		return e.HTTPStatusCode()
	})},
	"go-github":                         {goGitHub, 3, as(func(e *github.ErrorResponse) int { return e.Response.StatusCode })},
	"resty":                             {restyGo, 3, as(func(e statusError) int { return int(e) })},
	"go-retryablehttp":                  {retryableHTTP, 15, as(func(e statusError) int { return int(e) })},
	"go-retryablehttp, own retries off": {retryableHTTPOff, 3, as(func(e statusError) int { return int(e) })},
	"oauth2":                            {oauth2Go, 3, as(func(e statusError) int { return int(e) })},
	"google-api-go":                     {googleStorage, 3, as(func(e *googleapi.Error) int { return e.Code })},
	"connect-go":                        {connectGo, 3, as(func(e *connect.Error) int { return map[connect.Code]int{connect.CodeUnavailable: 503}[e.Code()] })},
}

func as[E error](status func(E) int) func(error) (int, bool) {
	return func(err error) (int, bool) {
		e, ok := errors.AsType[E](err)
		if !ok {
			return 0, false
		}
		return status(e), true
	}
}

// TestRequestsInAll: the layers do not multiply attempts.
func TestRequestsInAll(t *testing.T) {
	for name, sdk := range all {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &api{status: 503}
				rt, err := httpclient.New(a)
				if err != nil {
					t.Fatal(err)
				}
				err = sdk.call(t.Context(), rt)
				if status, ok := sdk.status(err); !ok || status != 503 {
					t.Errorf("error %T %v", err, err)
				}
				if a.sent != sdk.sent {
					t.Errorf("%d requests, want %d", a.sent, sdk.sent)
				}
			})
		})
	}
}

// TestRejectionsOfStripe: stripe-go repeats no 429 by quota, so the transport does.
func TestRejectionsOfStripe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{status: 429}
		rt, err := httpclient.New(a)
		if err != nil {
			t.Fatal(err)
		}
		err = stripeGo(t.Context(), rt)
		if e, ok := errors.AsType[*stripe.Error](err); !ok || e.HTTPStatusCode != 429 || a.sent != 3 {
			t.Errorf("%T %v after %d requests", err, err, a.sent)
		}
	})
}

// TestTypedErrors: a call that a cooldown stops fails with the SDK's own error, and nothing
// is sent.
func TestTypedErrors(t *testing.T) {
	for name, sdk := range all {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &api{status: 503, header: map[string]string{"Retry-After": "3000"}}
				rt, err := httpclient.New(a)
				if err != nil {
					t.Fatal(err)
				}
				_ = sdk.call(t.Context(), rt)
				before := a.sent
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err = sdk.call(ctx, rt)
				status, ok := sdk.status(err)
				// Some sleep until then, whatever the deadline is.
				if slept := errors.Is(err, context.DeadlineExceeded) && sleeps[name]; !slept && (!ok || status != 503) {
					t.Errorf("error %T %v", err, err)
				}
				if a.sent != before {
					t.Errorf("%d requests were sent to a server that asked for a pause", a.sent-before)
				}
			})
		})
	}
}

// sleeps are the SDKs that wait as long as a server says, unless their retries are off.
var sleeps = map[string]bool{"anthropic-sdk-go": true, "go-retryablehttp": true}

// TestRateLimitErrorOfGitHub: go-github tells a quota that is used up by its headers.
func TestRateLimitErrorOfGitHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reset := time.Now().Add(40 * time.Minute)
		a := &api{status: 403, header: map[string]string{
			"X-RateLimit-Resource": "core", "X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "0",
			"Retry-After": "2400", "X-RateLimit-Reset": "2000000000",
		}}
		rt, err := httpclient.New(a)
		if err != nil {
			t.Fatal(err)
		}
		_ = goGitHub(t.Context(), rt)
		err = goGitHub(t.Context(), rt)
		e, ok := errors.AsType[*github.RateLimitError](err)
		if !ok || e.Rate.Limit != 5000 || e.Rate.Reset.Sub(reset).Abs() > time.Second || a.sent != 1 {
			t.Errorf("%T %v after %d requests", err, err, a.sent)
		}
	})
}
