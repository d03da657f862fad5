package lua

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/holdfast-go/holdfast/internal/algo"
)

func gcraItem() Item {
	p, err := algo.Limit{Kind: algo.GCRA, N: 10, Per: 1_000_000, Burst: 10}.Params()
	if err != nil {
		panic(err)
	}
	return Item{Keys: NewNamer("p").KeysOf(algo.GCRA, "k"), Params: NewArgs(p), Cost: 1}
}

// FuzzDecode: whatever integers arrive, what is decoded is a possible decision,
// or an error that is ours; never a panic.
func FuzzDecode(f *testing.F) {
	add := func(v ...int64) {
		b := make([]byte, 0, 8*len(v))
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, uint64(x))
		}
		f.Add(b)
	}
	add(1_760_000_000_000_000, 100_000)
	add(1_760_000_000_000_000, -1-1_000_000)
	add(1_760_000_000_000_000, 0, 1, markBroken, 0)
	add(1_760_000_000_000_000, -1-1_000_000, 1, markBlocked, 500)
	add(math.MinInt64, math.MaxInt64, -1)
	add(1, 100_000, 1, markPartly, 1)
	f.Fuzz(func(t *testing.T, b []byte) {
		v := make([]int64, len(b)/8)
		for i := range v {
			v[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
		items := []Item{gcraItem()}
		now, out, err := decode(v, items, nil)
		if err != nil {
			var reply *ReplyError
			if !errors.As(err, &reply) || len(out) != 0 && !items[0].Broken {
				t.Fatalf("%v with %v", err, out)
			}
			return
		}
		d := out[0]
		if now <= 0 || d.Allowed != (d.RetryAfter == 0) || d.Remaining < 0 || d.Remaining > 10 ||
			d.RetryAfter < 0 || d.ResetAfter < 0 || d.Delay < 0 {
			t.Fatalf("%v became %+v", v, d)
		}
	})
}

// FuzzDecodeOthers is that for permits and reports.
func FuzzDecodeOthers(f *testing.F) {
	f.Add([]byte("a reply"), uint8(0))
	f.Add(make([]byte, 48), uint8(2))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0x80, 1, 2, 3, 4, 5, 6, 7, 0xff}, uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, callers uint8) {
		v := make([]int64, len(b)/8)
		for i := range v {
			v[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
		ask := Permits{Items: []PermitItem{{Leave: &Leaver{}}, {Ask: &PermitAsk{Callers: make([]string, callers)}}}}
		if err := ask.reply(v); err == nil && ask.Items[1].Got.Err == nil {
			r := ask.Items[1].Got
			if len(r.Granted) != int(callers) || min(r.Held, r.Ahead, r.NextEnd) < 0 || max(r.Held, r.Ahead, r.NextEnd) > algo.MaxExact {
				t.Fatalf("%v became %+v", v, r)
			}
		}
		report := Report{Asked: make([]Asked, callers)}
		if report.reply(v) == nil {
			for _, a := range report.Asked {
				if a.Fleet < 0 || a.Fleet > algo.MaxExact || min(report.Alive, report.Dead) < 0 {
					t.Fatalf("%v became %+v", v, report)
				}
			}
		}
	})
}

func TestDecodeRejects(t *testing.T) {
	const now = 1_760_000_000_000_000
	for name, v := range map[string][]int64{
		"nothing":                      nil,
		"too few":                      {now},
		"too many":                     {now, 100_000, 0},
		"no time":                      {0, 100_000},
		"not ours in the key":          {now, 0, 1, markBroken, 0},
		"a mark of no item":            {now, 100_000, 2, markBroken, 0},
		"an unknown mark":              {now, 100_000, 1, 9, 0},
		"admitted for less than one":   {now, 99_999},
		"admitted above the limit":     {now, 1_000_001},
		"denied without a wait":        {now, -1},
		"admitted and blocked":         {now, 100_000, 1, markBlocked, 5},
		"more admitted than asked":     {now, 100_000, 1, markPartly, 2},
		"infinity as an integer":       {now, math.MinInt64},
		"a block beyond exact times":   {now, -1, 1, markBlocked, 1 << 53},
		"a window where there is none": {now, 100_000, 1, markEnds, 5},
	} {
		var reply *ReplyError
		if _, _, err := decode(v, []Item{gcraItem()}, nil); !errors.As(err, &reply) {
			t.Errorf("%s: error %v, want a ReplyError", name, err)
		}
	}
}
