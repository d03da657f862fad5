package breaker_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

func TestNewRejects(t *testing.T) {
	for _, tt := range []struct {
		s    breaker.Settings
		want []string // field, value, rule
	}{
		{breaker.Settings{Window: -time.Second}, []string{"Window", "-1s", "from 10ms to 24h0m0s"}},
		{breaker.Settings{Window: 9 * time.Millisecond}, []string{"Window", "9ms"}},
		{breaker.Settings{Window: math.MaxInt64}, []string{"Window", "2562047h", "24h"}},
		{breaker.Settings{OpenMin: -1}, []string{"OpenMin", "-1ns", "from 1ms"}},
		{breaker.Settings{OpenMin: 1}, []string{"OpenMin", "1ns", "from 1ms"}},
		{breaker.Settings{OpenMax: -1}, []string{"OpenMax", "-1ns", "from 1ms"}},
		{breaker.Settings{OpenMax: 25 * time.Hour}, []string{"OpenMax", "25h", "to 24h"}},
		{breaker.Settings{OpenMin: time.Minute}, []string{"OpenMax", "30s", "OpenMin (1m0s)"}},
		{breaker.Settings{OpenMin: 2 * time.Second, OpenMax: time.Second}, []string{"OpenMax", "1s", "OpenMin (2s)"}},
		{breaker.Settings{ProbeTimeout: -1}, []string{"ProbeTimeout", "-1ns", "from 1ms"}},
		{breaker.Settings{FailureRatio: -0.1}, []string{"FailureRatio", "-0.1", "at most 1"}},
		{breaker.Settings{FailureRatio: 1.5}, []string{"FailureRatio", "1.5", "at most 1"}},
		{breaker.Settings{FailureRatio: math.NaN()}, []string{"FailureRatio", "NaN", "at most 1"}},
		{breaker.Settings{FailureRatio: math.Inf(1)}, []string{"FailureRatio", "+Inf"}},
		{breaker.Settings{SlowCall: -1}, []string{"SlowCall", "-1ns", "negative"}},
	} {
		b, err := breaker.New(tt.s)
		if err == nil || b != nil {
			t.Errorf("%+v: accepted", tt.s)
			continue
		}
		for _, w := range append(tt.want, "breaker: ") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q lacks %q", err, w)
			}
		}
	}
}

func TestNewAccepts(t *testing.T) {
	for _, s := range []breaker.Settings{
		{},
		{Window: 10 * time.Millisecond, MinRequests: 1, FailureRatio: 1, OpenMin: time.Millisecond, OpenMax: time.Millisecond, ProbeTimeout: time.Millisecond, SlowCall: 1},
		{Window: 24 * time.Hour, MinRequests: math.MaxUint32, FailureRatio: math.SmallestNonzeroFloat64, OpenMin: 24 * time.Hour, OpenMax: 24 * time.Hour, ProbeTimeout: 24 * time.Hour, SlowCall: math.MaxInt64},
	} {
		if _, err := breaker.New(s); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
