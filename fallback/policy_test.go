package fallback

import "testing"

func TestPolicyNames(t *testing.T) {
	for p, want := range map[Policy]string{Local: "local", Open: "open", Closed: "closed", 3: "unknown policy 3", 9: "unknown policy 9"} {
		if p.String() != want || p.Valid() != (p < 3) {
			t.Errorf("policy %d: %q, valid %v", p, p, p.Valid())
		}
	}
}
