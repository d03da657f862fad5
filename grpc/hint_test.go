package holdfastgrpc

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-go/holdfast/internal/admission"
	"github.com/holdfast-go/holdfast/retry"
)

// TestEvidence: what an attempt shows about its target.
func TestEvidence(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		ctx    context.Context
		code   codes.Code
		took   time.Duration
		unsent bool
		want   admission.Evidence
	}{
		{t.Context(), codes.NotFound, 0, false, admission.Accepted},
		{t.Context(), codes.NotFound, 0, true, 0}, // of this process
		{t.Context(), codes.ResourceExhausted, 0, false, 0},
		{t.Context(), codes.Canceled, 0, false, 0},
		{t.Context(), codes.Unknown, 0, false, 0},
		{t.Context(), codes.DeadlineExceeded, fairTime - 1, false, 0},
		{t.Context(), codes.DeadlineExceeded, time.Second, false, admission.Failed},
		{t.Context(), codes.Unavailable, 0, false, admission.Failed},
		{t.Context(), codes.Unavailable, 0, true, admission.Failed}, // it cannot be reached
		{t.Context(), codes.Internal, 0, false, admission.Failed},
		{t.Context(), codes.Internal, 0, true, 0},
		{t.Context(), codes.DataLoss, 0, false, admission.Failed},
		{gone, codes.Unavailable, 0, false, 0},
		{gone, codes.Internal, 0, true, 0},
	} {
		if got := evidenceOf(c.ctx, status.Error(c.code, "no"), c.took, c.unsent); got != c.want {
			t.Errorf("%v after %v, unsent %v: %v, want %v", c.code, c.took, c.unsent, got, c.want)
		}
	}
}

// TestDatesOfProxies are measured by the date of the proxy, which is in the trailer, too.
func TestDatesOfProxies(t *testing.T) {
	theirs := time.Now().Add(-time.Hour).UTC()
	const layout = "Mon, 02 Jan 2006 15:04:05 GMT"
	md := metadata.Pairs("date", theirs.Format(layout), "retry-after", theirs.Add(9*time.Second).Format(layout))
	if h := hintOf(status.New(codes.ResourceExhausted, ""), md); h.wait != 9*time.Second {
		t.Errorf("%+v", h)
	}
	md = metadata.Pairs("age", "5", "x-ratelimit-remaining", "0", "x-ratelimit-reset", "9")
	if h := hintOf(status.New(codes.ResourceExhausted, ""), md); h.asked {
		t.Errorf("of a cache: %+v", h)
	}
	// Of two waits the longer one counts, whoever names it.
	info := func(d time.Duration) *status.Status {
		st, err := status.New(codes.ResourceExhausted, "").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	for d, want := range map[time.Duration]hint{
		3 * time.Second: {asked: true, wait: 7 * time.Second, source: "Retry-After"},
		9 * time.Second: {asked: true, wait: 9 * time.Second, source: sourceRetryInfo},
	} {
		if h := hintOf(info(d), metadata.Pairs("retry-after", "7")); h != want {
			t.Errorf("%v: %+v, want %+v", d, h, want)
		}
	}
}

// TestSourcesOfEqualWaits: the status counts first.
func TestSourcesOfEqualWaits(t *testing.T) {
	st, err := status.New(codes.ResourceExhausted, "").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	for _, md := range []metadata.MD{metadata.Pairs(pushbackKey, "7000"), metadata.Pairs("retry-after", "7")} {
		if h := hintOf(st, md); h != (hint{asked: true, wait: 7 * time.Second, source: sourceRetryInfo}) {
			t.Errorf("%v: %+v", md, h)
		}
	}
}

// TestResetsOfProxies may be times of the epoch.
func TestResetsOfProxies(t *testing.T) {
	reset := strconv.FormatInt(time.Now().Add(time.Minute).Unix(), 10)
	h := hintOf(status.New(codes.ResourceExhausted, ""), metadata.Pairs("x-ratelimit-remaining", "0", "x-ratelimit-reset", reset))
	if !h.asked || h.wait > time.Minute {
		t.Errorf("%+v", h)
	}
}

// TestMalformedDetails say nothing, also where they begin with a wait.
func TestMalformedDetails(t *testing.T) {
	const url = "type.googleapis.com/google.rpc.RetryInfo"
	value, err := proto.Marshal(&errdetails.RetryInfo{RetryDelay: durationpb.New(5 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		value []byte
		want  time.Duration
	}{{value, 5 * time.Second}, {append(value, 0xff), 0}} {
		d, ok := retryInfo(status.FromProto(&spb.Status{Code: 8, Details: []*anypb.Any{{TypeUrl: url, Value: c.value}}}))
		if d != c.want || ok != (c.want > 0) {
			t.Errorf("%x: %v %v", c.value, d, ok)
		}
	}
}

// TestStatusWithoutAWait names none.
func TestStatusWithoutAWait(t *testing.T) {
	for wait, want := range map[time.Duration]int{0: 0, 1: 1} {
		if got := len((&Error{Reason: retry.CoolingDown, Wait: wait}).GRPCStatus().Details()); got != want {
			t.Errorf("a wait of %v: %d details", wait, got)
		}
	}
}

// TestDetailsAreBounded: a server that sends very many details is read for a while.
func TestDetailsAreBounded(t *testing.T) {
	for others, want := range map[int]bool{0: true, maxDetails - 1: true, maxDetails: false} {
		var all []protoadapt.MessageV1
		for range others {
			all = append(all, protoadapt.MessageV1Of(&errdetails.DebugInfo{}))
		}
		st, err := status.New(codes.Unavailable, "").WithDetails(append(all, protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}))...)
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := Wait(st.Err()); ok != want || want && d != time.Second {
			t.Errorf("after %d others: %v %v", others, d, ok)
		}
	}
	for _, err := range []error{nil, errors.New("other"), status.Error(codes.Unavailable, "")} {
		if d, ok := Wait(err); ok || d != 0 {
			t.Errorf("%v: %v %v", err, d, ok)
		}
	}
}
