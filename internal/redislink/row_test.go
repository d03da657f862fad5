package redislink

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/breaker"
)

// TestCallersWakeEachOther: all who are answered together go on, whoever of them has left; and one who does not await
// its answer yet keeps no other one waiting.
func TestCallersWakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lets, sent := hanging(t, 128)
		q := only(l)
		for i := range depth { // calls in flight
			begin(t.Context(), q, fmt.Sprint("first", i), time.Minute)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var busy, stay, leave []*caller
		for i := range 4 * inRow {
			switch o := decision(gcraArgs, fmt.Sprint("k", i), 1); i % 8 {
			case 2:
				if _, ok := q.start(t.Context(), o, time.Minute, false); !ok {
					t.Fatal(o.Err)
				}
				busy = append(busy, &caller{o: o})
			case 3, 4:
				leave = append(leave, begin(ctx, q, fmt.Sprint("k", i), time.Minute))
			default:
				stay = append(stay, begin(t.Context(), q, fmt.Sprint("k", i), time.Minute))
			}
		}
		lets <- struct{}{}
		synctest.Wait()
		if keys := sent(); len(keys) != depth+1 {
			t.Fatalf("%v were sent", keys)
		}
		cancel()
		synctest.Wait()
		close(lets)
		synctest.Wait()
		for i, c := range leave {
			if !c.done || c.class != breaker.ClassCaller {
				t.Errorf("%d of those who leave: %+v", i, c)
			}
		}
		for i, c := range stay {
			if !c.done || c.class != breaker.ClassOK {
				t.Errorf("%d of those who stay: %v, %v", i, c.class, c.err)
			}
		}
		for i, c := range busy {
			if len(c.o.done) != 1 {
				t.Errorf("%d of those who are busy cannot go on", i)
			}
			if class, err := q.await(t.Context(), c.o); class != breaker.ClassOK {
				t.Errorf("%d of those who are busy: %v, %v", i, class, err)
			}
		}
	})
}
