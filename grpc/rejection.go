package holdfastgrpc

import (
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// rejection is what a call gets instead of being served. What it says is the same for
// every caller: keys and causes are not shown to them.
type rejection struct {
	err     error
	trailer metadata.MD
}

func newRejection(d *Decision) *rejection {
	if d.status != nil {
		return &rejection{err: d.status.Err()}
	}
	st, wait := status.New(d.Code, reasonOf(d)), waitOf(d)
	if wait == 0 {
		return &rejection{err: st.Err()}
	}
	details := []protoadapt.MessageV1{&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}}
	if d.Code == codes.ResourceExhausted {
		details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
			Subject: strings.ToValidUTF8(d.Policy, "\uFFFD"), Description: "the limit of this policy is reached",
		}}})
	}
	if with, err := st.WithDetails(details...); err == nil {
		st = with
	}
	return &rejection{st.Err(), metadata.Pairs(pushbackKey, pushback(wait))}
}

// waitOf returns when to come back; 0 is not known.
func waitOf(d *Decision) time.Duration {
	switch {
	case d.Code != codes.ResourceExhausted && d.Code != codes.Unavailable:
		return 0
	case d.Result.RetryAfter > 0:
		return d.Result.RetryAfter
	case d.Code == codes.ResourceExhausted:
		return time.Millisecond // an Allower of the user's may deny and name no time
	}
	return 0
}

// reasonOf returns the message of a rejection.
func reasonOf(d *Decision) string {
	if d.Code == codes.ResourceExhausted {
		return "rate limit " + strconv.Quote(d.Policy) + " reached; retry in " + millis(waitOf(d)).String()
	}
	return d.problem.Reason("call", d.Err)
}

// pushbackKey is the trailer by which a server says when to retry (gRFC A6).
const pushbackKey = "grpc-retry-pushback-ms"

// pushback returns a wait in whole milliseconds, rounded up; "-1", which is not to retry,
// where they do not fit the 32 bits of gRFC A6.
func pushback(d time.Duration) string {
	ms := millis(d).Milliseconds()
	if ms > math.MaxInt32 {
		return "-1"
	}
	return strconv.FormatInt(ms, 10)
}

// millis rounds a time up to whole milliseconds.
func millis(d time.Duration) time.Duration {
	down := d.Truncate(time.Millisecond)
	if down < d && d < math.MaxInt64-time.Millisecond {
		return down + time.Millisecond
	}
	return down
}
