package redisproc

import "testing"

func TestParseClaim(t *testing.T) {
	for _, tt := range []struct {
		line string
		want claim
	}{
		{"a 127.0.0.1:7000@17000 myself,master - 0 0 3 connected 0-99 101 [5->-b]", claim{7000, true, 3}},
		{"b 127.0.0.1:7001@17001,host master - 0 0 4 connected 100", claim{7001, false, 4}},
		{"b 127.0.0.1:7001@17001 master - 0 0 4 connected 101-200", claim{}},
		{"b 127.0.0.1:7001@17001 myself,master - 0 0 4 connected [100-<-a]", claim{}},
		{"c 127.0.0.1:7002@17002 slave a 0 0 3 connected", claim{}},
		{"", claim{}},
	} {
		slot := 100
		if tt.want.port == 7000 {
			slot = 101
		}
		if got := parseClaim(tt.line, slot); got != tt.want {
			t.Errorf("%q: %+v, want %+v", tt.line, got, tt.want)
		}
	}
}

// What a node says of itself counts for more than what another one, which may
// not have heard yet, says of it.
func TestClaimsInOrder(t *testing.T) {
	order := []claim{{}, {1, false, 3}, {2, false, 9}, {3, true, 1}, {4, true, 2}}
	for i, a := range order {
		for k, b := range order {
			if got := a.beats(b); got != (i > k) {
				t.Errorf("%+v beats %+v: %v", a, b, got)
			}
		}
	}
}
