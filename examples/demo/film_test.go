package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// film is an animated picture (APNG) of the upper end of the page, one frame per second.
type film struct {
	acts   map[int]func() // before the frame of this number
	frames []image.Image
}

// take takes n frames, from the top of the page to the bottom of what selector finds.
func (f *film) take(p *page, a *app, n int, selector string) {
	p.Helper()
	p.do(chromedp.EmulateViewport(900, 1000))
	p.run("scrollTo(0, 0); document.activeElement.blur()")
	bottom, err := chromedp.Run(p.ctx, chromedp.Evaluate[float64](fmt.Sprintf("document.querySelector(%q).getBoundingClientRect().bottom", selector)))
	if err != nil {
		p.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(900, int64(bottom)+10))
	first := len(a.traffic.history())
	for i := range n {
		until(p.T, "the next second", func() bool { return len(a.traffic.history()) > first+i })
		if do := f.acts[i]; do != nil {
			do()
		}
		p.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
		shown, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			p.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(shown))
		if err != nil {
			p.Fatal(err)
		}
		f.frames = append(f.frames, img)
	}
	p.do(chromedp.EmulateViewport(1280, 1000))
}

// write packs all frames into their common colours, and of each frame what differs from the
// one before it.
func (f *film) write(path string, each time.Duration) error {
	colours := commonColours(f.frames...)
	var out bytes.Buffer
	out.WriteString("\x89PNG\r\n\x1a\n")
	chunk := func(name string, parts ...any) {
		var data bytes.Buffer
		data.WriteString(name)
		for _, part := range parts {
			_ = binary.Write(&data, binary.BigEndian, part)
		}
		_ = binary.Write(&out, binary.BigEndian, uint32(data.Len()-len(name)))
		out.Write(data.Bytes())
		_ = binary.Write(&out, binary.BigEndian, crc32.ChecksumIEEE(data.Bytes()))
	}
	sequence := uint32(0)
	var before *image.Paletted
	for i, frame := range f.frames {
		packed := pack(frame, colours)
		area := packed.Bounds()
		if before != nil {
			area = changed(before, packed)
		}
		before = packed
		var encoded bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&encoded, packed.SubImage(area)); err != nil {
			return err
		}
		parts := chunksOf(encoded.Bytes())
		if i == 0 {
			chunk("IHDR", parts["IHDR"])
			chunk("acTL", uint32(len(f.frames)), uint32(0)) // for ever
			chunk("PLTE", parts["PLTE"])
		}
		chunk("fcTL", sequence, uint32(area.Dx()), uint32(area.Dy()), uint32(area.Min.X), uint32(area.Min.Y),
			uint16(each.Milliseconds()), uint16(1000), uint8(0), uint8(0))
		sequence++
		if i == 0 {
			chunk("IDAT", parts["IDAT"])
		} else {
			chunk("fdAT", sequence, parts["IDAT"])
			sequence++
		}
	}
	chunk("IEND")
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// chunksOf returns the data of each kind of chunk of a PNG, in one piece.
func chunksOf(file []byte) map[string][]byte {
	found := map[string][]byte{}
	for rest := file[8:]; len(rest) >= 12; {
		n := int(binary.BigEndian.Uint32(rest))
		found[string(rest[4:8])] = append(found[string(rest[4:8])], rest[8:8+n]...)
		rest = rest[12+n:]
	}
	return found
}

// changed is the smallest area outside of which two frames are the same; never empty.
func changed(a, b *image.Paletted) image.Rectangle {
	var area image.Rectangle
	for y := b.Rect.Min.Y; y < b.Rect.Max.Y; y++ {
		for x := b.Rect.Min.X; x < b.Rect.Max.X; x++ {
			if a.ColorIndexAt(x, y) != b.ColorIndexAt(x, y) {
				area = area.Union(image.Rect(x, y, x+1, y+1))
			}
		}
	}
	if area.Empty() {
		area = image.Rectangle{b.Rect.Min, b.Rect.Min.Add(image.Pt(1, 1))}
	}
	return area
}

// commonColours are the 256 commonest, which is what a page of plain areas and text needs.
func commonColours(pictures ...image.Image) color.Palette {
	seen := map[color.Color]int{}
	for _, img := range pictures {
		area := img.Bounds()
		for y := area.Min.Y; y < area.Max.Y; y++ {
			for x := area.Min.X; x < area.Max.X; x++ {
				seen[img.At(x, y)]++
			}
		}
	}
	common := slices.SortedFunc(maps.Keys(seen), func(a, b color.Color) int { return seen[b] - seen[a] })
	return color.Palette(common[:min(256, len(common))])
}

// pack draws a picture in these colours, each pixel in the nearest.
func pack(img image.Image, colours color.Palette) *image.Paletted {
	area := img.Bounds()
	packed := image.NewPaletted(area, colours)
	nearest := map[color.Color]uint8{}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			c := img.At(x, y)
			index, known := nearest[c]
			if !known {
				index = uint8(colours.Index(c))
				nearest[c] = index
			}
			packed.SetColorIndex(x, y, index)
		}
	}
	return packed
}

// TestFilm: an animated picture has all its frames, and is a PNG for those who show only one.
func TestFilm(t *testing.T) {
	var f film
	for i := range 3 {
		img := image.NewRGBA(image.Rect(0, 0, 40, 20))
		draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
		for x := range 20 { // more colours than a palette of 4 bits has
			img.Set(x, 0, color.RGBA{uint8(10 * x), 0, 0, 255})
		}
		draw.Draw(img, image.Rect(10*i, 5, 10*i+5, 9), image.Black, image.Point{}, draw.Src)
		f.frames = append(f.frames, img)
	}
	path := t.TempDir() + "/film.png"
	if err := f.write(path, time.Second); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, err := png.Decode(bytes.NewReader(file))
	if err != nil || first.At(2, 6) != color.Color(color.RGBA{0, 0, 0, 255}) || first.Bounds() != image.Rect(0, 0, 40, 20) {
		t.Fatalf("%v: %v", err, first)
	}
	chunks := chunksOf(file)
	if n := binary.BigEndian.Uint32(chunks["acTL"]); n != 3 || len(chunks["fcTL"]) != 3*26 {
		t.Errorf("%d frames, %d bytes about them", n, len(chunks["fcTL"]))
	}
	// The second frame is what differs from the first: two squares and what is between.
	second := chunks["fcTL"][26:52]
	var area [4]uint32
	for i := range area {
		area[i] = binary.BigEndian.Uint32(second[4+4*i:])
	}
	if area != [4]uint32{15, 4, 0, 5} {
		t.Errorf("the second frame covers %v", area)
	}
	if len(chunks["fdAT"]) == 0 {
		t.Error("the other frames have no pictures")
	}
}
