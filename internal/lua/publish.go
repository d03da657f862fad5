package lua

import "fmt"

// Published names the texts that processes publish, each after the time at which it did and a space, and
// until when they are kept.
func (n *Namer) Published() (texts, times string) {
	texts = n.of("published", "all")
	return texts, texts + ":t"
}

// Publish publishes the text of a process for Life µs, or with a Life of 0 removes it. It learns how many processes
// there are.
type Publish struct {
	Now     int64
	Names   *Namer
	Process string
	Life    int64
	Text    []byte

	Processes int64
}

func (p *Publish) request(*Clock) (*Script, *wire, bool) {
	w := newWire()
	texts, times := p.Names.Published()
	w.key(texts)
	w.key(times)
	w.sealKeys()
	w.args = append(w.args, p.Now, p.Process, p.Life, p.Text)
	return publishScript, w, false
}

func (p *Publish) reply(v []int64) error {
	if len(v) != 1 || !exact(v[0]) {
		return &ReplyError{fmt.Sprintf("published %v", v)}
	}
	p.Processes = v[0]
	return nil
}
