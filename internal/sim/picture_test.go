//go:build !race

package sim

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/limiter"
)

// TestPictureOfAReturn draws what four processes admit in the ten seconds after an outage, by
// process: each returning by itself, as with WithShare, and together. make return runs it, and it
// writes the file that RETURN names.
func TestPictureOfAReturn(t *testing.T) {
	long(t)
	const rate, width, height = 400, 340, 200
	colors := []string{"#4269d0", "#efb118", "#3ca951", "#ff725c"}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" fill="#fff"/>`+"\n", 2*width+20, height+60)
	for panel, c := range []struct {
		title string
		opts  []limiter.Option
	}{{"each by itself", []limiter.Option{limiter.WithShare(0.25)}}, {"together", nil}} {
		standing(t, 1, 4, limiter.GCRA(limiter.PerSecond(rate), 40), func(int) time.Duration { return 0 }, func(t *testing.T, l *lines) {
			got := l.outage(t, rate, 30*time.Second, 0)
			x0, y0, scale := float64(30+panel*width), float64(height+30), float64(height)/(2*rate)
			fmt.Fprintf(&b, `<text x="%g" y="18">%s: admitted per second, by process</text>`+"\n", x0, c.title)
			most := slices.Max(perSecond(got))
			if alone := panel == 0; alone != (most > rate*105/100) {
				t.Errorf("%s: %d of %d in a second", c.title, most, rate)
			}
			for s, all := range perSecond(got) {
				y := y0
				for i := range got {
					h := float64(got[i][s]) * scale
					y -= h
					fmt.Fprintf(&b, `<rect x="%g" y="%.1f" width="24" height="%.1f" fill="%s"/>`, x0+float64(s)*29, y, h, colors[i])
				}
				fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="middle">%d</text><text x="%g" y="%g" text-anchor="middle">%d s</text>`+"\n", x0+float64(s)*29+12, y-4, all, x0+float64(s)*29+12, y0+16, s)
			}
			fmt.Fprintf(&b, `<path d="M%g %gh292" stroke="#000" stroke-dasharray="4 3"/>`+"\n", x0-3, y0-rate*scale)
		}, c.opts...)
	}
	b.WriteString("</svg>\n")
	name := os.Getenv("RETURN")
	if name == "" {
		return
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
