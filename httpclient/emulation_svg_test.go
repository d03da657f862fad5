//go:build !race

package httpclient

import (
	"fmt"
	"math"
	"strings"
)

// picture draws the rejections of each cell: one row, with a dot for each strategy.
func picture(rows []cell, got []map[strategy]emulated) string {
	const left, width, top, step = 250, 560, 70, 17
	colours := map[strategy]string{byBackoff: "#b91c1c", byAdaptive: "#d97706", byItself: "#2563eb", byRedis: "#047857"}
	x := func(v float64) float64 { // a decade for each ninth of the width, from 0.1 to 10^5
		return left + width*(math.Log10(max(0.1, v))+1)/6
	}
	var b strings.Builder
	height := top + step*len(rows) + 30
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", left+width+40, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n"+`<text x="16" y="24" font-size="15" fill="#111827">Rejections per 1,000 admitted requests, on a logarithmic scale</text>`+"\n")
	for i, s := range strategies {
		cx := 24 + 150*i
		fmt.Fprintf(&b, `<circle cx="%d" cy="44" r="5" fill="%s"/><text x="%d" y="48" fill="#111827">%s</text>`+"\n", cx, colours[s], cx+10, s)
	}
	for e := -1; e <= 5; e++ {
		label := fmt.Sprintf("%g", math.Pow10(e))
		if e == -1 {
			label = "0"
		}
		at := x(math.Pow10(e))
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e5e7eb"/><text x="%.1f" y="%d" text-anchor="middle" fill="#374151">%s</text>`+"\n", at, top-8, at, height-24, at, height-8, label)
	}
	for i, c := range rows {
		y := top + step*i + 4
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end" fill="#111827">%s</text>`+"\n", left-14, y+4, c)
		for _, s := range strategies {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%d" r="4" fill="%s"/>`+"\n", x(got[i][s].rejected), y, colours[s])
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
