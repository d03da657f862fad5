package main

import (
	"bytes"
	"fmt"
	"html"
	"slices"
)

// chart draws decisions per second as multiples of the plain client's, as bars
// for the loads that matter, each as wide as the largest of its load.
func chart(list []contender, of map[string][]result) []byte {
	const left, bar, width, head = 210, 20, 420, 34
	var b bytes.Buffer
	y := 10
	var body bytes.Buffer
	for _, l := range loads {
		results := of[l.name]
		if results == nil || !slices.Contains(chosen, l.name) {
			continue
		}
		list := l.of(list)
		fmt.Fprintf(&body, `<text x="10" y="%d" class="h">%s</text>`+"\n", y+16, html.EscapeString(l.name))
		y += head - 8
		most := 0.0
		for _, r := range results {
			most = max(most, r.rate)
		}
		for i, r := range results {
			class := "p"
			if len(list[i].name) >= 8 && list[i].name[:8] == "Holdfast" {
				class = "o"
			}
			w := max(1, r.rate/most*width)
			fmt.Fprintf(&body, `<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.0f" height="%d" class="%s"/><text x="%.0f" y="%d">%.2f ×</text>`+"\n",
				left-8, y+14, html.EscapeString(list[i].name), left, y+2, w, bar-4, class, left+w+6, y+14, r.ratio())
			y += bar
		}
		y += 10
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 %d" width="720" role="img" aria-label="Decisions per second, as multiples of a plain EVALSHA client">`+"\n", y+10)
	b.WriteString("<style>text{font:12px system-ui,sans-serif;fill:#24292f}.h{font-weight:600;font-size:13px}.o{fill:#1a7f64}.p{fill:#b6bdc6}</style>\n")
	fmt.Fprintf(&b, `<rect width="720" height="%d" fill="#fff"/>`+"\n", y+10)
	b.Write(body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}
