package admission

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestFullTableIsNotSearchedForEachKey: while all entries are in force, a flood of other keys
// searches the table, which everybody waits for, once a second.
func TestFullTableIsNotSearchedForEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, until := 0, time.Now().Add(time.Minute)
		table := NewTable(100, func(*int) bool { asked++; return time.Now().Before(until) })
		add := func(key string) *int { return table.GetOrAdd(key, func() *int { return new(int) }) }
		for i := range 100 {
			if add(strconv.Itoa(i)) == nil {
				t.Fatal("no room")
			}
		}
		for i := range 1000 {
			if add("more"+strconv.Itoa(i)) != nil {
				t.Fatal("one in force was dropped")
			}
		}
		if asked != 100 {
			t.Errorf("%d entries were looked at for 1000 keys, want 100", asked)
		}
		if add("7") == nil {
			t.Error("an entry is not found while the table is full")
		}
		time.Sleep(fullFor - 1)
		if add("more"); asked != 100 {
			t.Errorf("searched again after %v", fullFor-1)
		}
		time.Sleep(1)
		if add("more"); asked != 200 {
			t.Errorf("not searched again after %v", fullFor)
		}
		time.Sleep(time.Minute)
		if add("more") == nil {
			t.Error("no room when none is in force any more")
		}
	})
}
