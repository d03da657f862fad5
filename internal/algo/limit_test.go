package algo

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

func TestParamsRejects(t *testing.T) {
	for name, c := range map[string]struct {
		limit Limit
		field string
	}{
		"no algorithm":              {Limit{N: 1, Per: 1, Burst: 1}, "algorithm"},
		"unknown algorithm":         {Limit{Kind: 99, N: 1, Per: 1, Burst: 1}, "algorithm"},
		"rate zero":                 {Limit{Kind: GCRA, Per: sec, Burst: 1}, "rate"},
		"rate negative":             {Limit{Kind: GCRA, N: -100, Per: sec, Burst: 1}, "rate"},
		"rate beyond 2^53":          {Limit{Kind: FixedWindow, N: 1 << 53, Per: sec}, "rate"},
		"period zero":               {Limit{Kind: FixedWindow, N: 1}, "period"},
		"period negative":           {Limit{Kind: FixedWindow, N: 1, Per: -sec}, "period"},
		"period of 367 days":        {Limit{Kind: FixedWindow, N: 1, Per: 367 * 24 * 3600 * sec}, "period"},
		"burst zero":                {Limit{Kind: TokenBucket, N: 1, Per: sec}, "burst"},
		"burst negative":            {Limit{Kind: LeakyBucket, N: 1, Per: sec, Burst: -5}, "burst"},
		"burst overflows":           {Limit{Kind: GCRA, N: 7, Per: sec, Burst: math.MaxInt64}, "burst"},
		"refill longer than a year": {Limit{Kind: GCRA, N: 1, Per: 3600 * sec, Burst: 9000}, "burst"},
		"log of 10,001":             {Limit{Kind: SlidingWindowLog, N: MaxLog + 1, Per: sec}, "rate"},
		"counter product":           {Limit{Kind: SlidingWindowCounter, N: 200_000, Per: 24 * 3600 * sec}, "rate"},
	} {
		_, err := c.limit.Params()
		var f *configerr.Error
		if !errors.As(err, &f) || f.Field != c.field || f.Rule == "" {
			t.Errorf("%s: error %v, want one for the field %s", name, err, c.field)
		}
	}
}

func TestParamsAccepts(t *testing.T) {
	params(t, Limit{Kind: SlidingWindowLog, N: MaxLog, Per: sec})
	// Large, but in lowest terms one unit per 432 ms.
	p := params(t, Limit{Kind: TokenBucket, N: 200_000, Per: 24 * 3600 * sec, Burst: 200_000})
	if p.Num != 1 || p.Den != 432_000 {
		t.Errorf("200,000 a day is %d per %d µs, want 1 per 432000", p.Num, p.Den)
	}
}

// FuzzParams: no accepted limit lets any value leave 2^53, whatever the costs,
// and no refused one panics.
func FuzzParams(f *testing.F) {
	f.Add(uint8(7), int64(100), int64(sec), int64(200))
	f.Add(uint8(3), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MinInt64))
	f.Add(uint8(4), int64(3), int64(7), int64(1)<<52)
	f.Fuzz(func(t *testing.T, kind uint8, n, per, burst int64) {
		p, err := Limit{Kind: Kind(kind), N: n, Per: per, Burst: burst}.Params()
		if err != nil {
			return
		}
		limit := big.NewInt(MaxExact)
		mul := func(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }
		if p.Kind == SlidingWindowCounter && mul(p.Cap, p.Den).Cmp(limit) > 0 {
			t.Fatalf("%+v: the counter's product leaves 2^53", p)
		}
		if !p.Kind.Windowed() {
			if mul(n, p.Den).Cmp(mul(per, p.Num)) != 0 {
				t.Fatalf("%+v is not %d per %d", p, n, per)
			}
			full := mul(p.Cap, p.Den)
			sum := new(big.Int).Add(new(big.Int).Lsh(full, 1), big.NewInt(p.Num))
			if sum.Cmp(limit) > 0 {
				t.Fatalf("%+v: a bucket's sum leaves 2^53", p)
			}
		}
		var s State
		now := t0
		for _, cost := range []int64{p.Cap, 1, p.Cap} {
			d := Step(p, &s, now, cost)
			for _, v := range []int64{d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay} {
				if v < 0 || v > MaxExact {
					t.Fatalf("%+v: %+v", p, d)
				}
			}
			now += d.RetryAfter / 2
		}
	})
}

func TestScaleNeverAboveTheShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParams(t, drawKind(t))
		share := rapid.Float64Range(1e-6, 1).Draw(t, "share")
		q := p.Scale(share)
		if q.Cap < 1 && q.Frac == 0 {
			t.Fatalf("%+v × %g = %+v: below one unit", p, share, q)
		}
		if q.Cap > 1 && float64(q.Cap) > float64(p.Cap)*share*(1+1e-9) {
			t.Fatalf("%+v × %g = %+v: burst above the share", p, share, q)
		}
		if !p.Kind.Windowed() {
			got := float64(q.Num) / float64(q.Den)
			if want := float64(p.Num) / float64(p.Den) * share; got > want*(1+1e-6) {
				t.Fatalf("%+v × %g = %+v: rate %g above %g", p, share, q, got, want)
			}
		}
		q, _ = q.In(t0, t0)
		var s State
		Step(q, &s, t0, q.Cap)
	})
}

func TestScaleIsExactForOneOfK(t *testing.T) {
	p := params(t, Limit{Kind: GCRA, N: 100, Per: sec, Burst: 60})
	for k := int64(1); k <= 60; k++ {
		q := p.Scale(1 / float64(k))
		if q.Cap != 60/k || q.Num*p.Den*k != p.Num*q.Den {
			t.Errorf("1/%d of %+v is %+v", k, p, q)
		}
	}
}
