package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/breaker"
)

// dialTimeout is what net.Dialer returns when its own time is up: it matches
// context.DeadlineExceeded although no context of anyone ended.
type dialTimeout struct{}

func (dialTimeout) Error() string        { return "i/o timeout" }
func (dialTimeout) Timeout() bool        { return true }
func (dialTimeout) Is(target error) bool { return target == context.DeadlineExceeded }

var (
	readTimeout = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	errRefused  = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
)

func TestClassifyNetwork(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want breaker.Class
	}{
		{nil, breaker.ClassOK},
		{errRefused, breaker.ClassUnavailable},
		{syscall.ECONNRESET, breaker.ClassUnavailable},
		{syscall.EPIPE, breaker.ClassUnavailable},
		{readTimeout, breaker.ClassUnavailable},
		{os.ErrDeadlineExceeded, breaker.ClassUnavailable},
		{&net.OpError{Op: "dial", Net: "tcp", Err: dialTimeout{}}, breaker.ClassUnavailable},
		{&net.DNSError{Err: "no such host", Name: "redis", IsNotFound: true}, breaker.ClassUnavailable},
		{net.ErrClosed, breaker.ClassUnavailable},
		{io.EOF, breaker.ClassUnavailable},
		{io.ErrUnexpectedEOF, breaker.ClassUnavailable},
		{redis.ErrClosed, breaker.ClassUnavailable},
		{redis.ErrPoolTimeout, breaker.ClassUnavailable},
		{redis.ErrPoolExhausted, breaker.ClassUnavailable},
		{errors.New("redis: all ring shards are down"), breaker.ClassUnavailable},
		{errors.New("redis: cluster has no nodes"), breaker.ClassUnavailable},
		{errors.New("redis: all sentinels specified in configuration are unreachable"), breaker.ClassUnavailable},
		{errors.New("anything else"), breaker.ClassUnavailable},
		{context.DeadlineExceeded, breaker.ClassSlow},
		{context.Canceled, breaker.ClassAborted},
	} {
		if got := breaker.Classify(context.Background(), tt.err); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
		if tt.err == nil {
			continue
		}
		if got := breaker.Classify(context.Background(), fmt.Errorf("w: %w", tt.err)); got != tt.want {
			t.Errorf("wrapped %v: %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestClassifyCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, cancelLive := context.WithTimeout(context.Background(), time.Hour)
		defer cancelLive()
		cancelled, cancel := context.WithCancel(live)
		cancel()
		expired, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		time.Sleep(2 * time.Second)

		for _, tt := range []struct {
			name string
			ctx  context.Context
			err  error
			want breaker.Class
		}{
			{"live, our deadline", live, context.DeadlineExceeded, breaker.ClassSlow},
			{"live, our cancel", live, context.Canceled, breaker.ClassAborted},
			{"live, our cancel of a dial", live, &net.OpError{Op: "dial", Err: context.Canceled}, breaker.ClassAborted},
			{"live, read timeout", live, readTimeout, breaker.ClassUnavailable},
			{"cancelled", cancelled, context.Canceled, breaker.ClassCaller},
			{"cancelled, our deadline", cancelled, context.DeadlineExceeded, breaker.ClassCaller},
			{"cancelled, wrapped", cancelled, fmt.Errorf("w: %w", context.Canceled), breaker.ClassCaller},
			{"cancelled, read timeout", cancelled, readTimeout, breaker.ClassUnavailable},
			{"cancelled, refused", cancelled, errRefused, breaker.ClassUnavailable},
			{"cancelled, success", cancelled, nil, breaker.ClassOK},
			{"expired", expired, context.DeadlineExceeded, breaker.ClassCaller},
			{"expired, read timeout", expired, readTimeout, breaker.ClassCaller},
			{"expired, pool timeout", expired, redis.ErrPoolTimeout, breaker.ClassUnavailable},
			{"expired, EOF", expired, io.EOF, breaker.ClassUnavailable},
			{"expired, refused", expired, errRefused, breaker.ClassUnavailable},
			{"expired, sentinels cut off by it", expired, fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", context.DeadlineExceeded), breaker.ClassCaller},
		} {
			if got := breaker.Classify(tt.ctx, tt.err); got != tt.want {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
	})
}

// lagging is a context whose deadline has passed but whose timer has not fired,
// which is when a socket that was given the same deadline returns.
type lagging struct{ context.Context }

func (lagging) Deadline() (time.Time, bool) { return time.Now(), true }

func TestClassifyBeforeTimerFires(t *testing.T) {
	ctx := lagging{context.Background()}
	for _, err := range []error{readTimeout, context.DeadlineExceeded} {
		if got := breaker.Classify(ctx, err); got != breaker.ClassCaller {
			t.Errorf("%v: %v, want %v", err, got, breaker.ClassCaller)
		}
	}
}
