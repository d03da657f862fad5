package lua

import (
	"context"
	"fmt"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// Asked is how much one process asks for of one encoded id, as a rate in an integer
// unit of the caller's; 0 takes it out. Fleet is set to the sum over all processes.
type Asked struct {
	ID    string
	Rate  int64
	Fleet int64
}

// Sampled is the id under which all that the samplers of a prefix keep is found.
const Sampled = "all"

func (n *Namer) sampled(w *wire, process int64) {
	w.key(n.rates, Sampled, "}")
	w.key(n.rates, Sampled, "}:p")
	w.key(n.rates, Sampled, "}:", strconv.FormatInt(process, 10))
}

// MaxAsked is how many ids one Report may have, and how many one Bury takes out.
const MaxAsked = 500

// Report tells what a process asks for, and sets what the fleet does. It returns the
// number of processes and that of one which has not been heard of for life µs, or 0.
func (c *Client) Report(ctx context.Context, now int64, names *Namer, process, life int64, asked []Asked) (alive, dead int64, err error) {
	w := newWire()
	names.sampled(w, process)
	w.sealKeys()
	w.args = append(w.args, now, process, life)
	for i := range asked {
		w.args = append(w.args, asked[i].ID, asked[i].Rate)
	}
	v, err := c.run(ctx, sampledScript, w, false)
	if err != nil {
		return 0, 0, err
	}
	return decodeReport(v, asked)
}

func decodeReport(v []int64, asked []Asked) (alive, dead int64, err error) {
	const head = 2
	if len(v) != head+len(asked) || v[0] < 0 || v[0] > algo.MaxExact || v[1] < 0 || v[1] > algo.MaxExact {
		return 0, 0, &ReplyError{fmt.Sprintf("report of %d integers for %d keys", len(v), len(asked))}
	}
	for i := range asked {
		if asked[i].Fleet = v[head+i]; asked[i].Fleet < 0 || asked[i].Fleet > algo.MaxExact {
			return 0, 0, &ReplyError{fmt.Sprintf("rate %d", asked[i].Fleet)}
		}
	}
	return v[0], v[1], nil
}

// Bury takes a process that Report called dead out of the sums, or with a life of 0 one
// that leaves. As long as it says that there is more, it is to be called again.
func (c *Client) Bury(ctx context.Context, now int64, names *Namer, process, life int64) (more bool, err error) {
	w := newWire()
	names.sampled(w, process)
	w.sealKeys()
	w.args = append(w.args, now, process, life, MaxAsked)
	v, err := c.run(ctx, buryScript, w, false)
	if err != nil {
		return false, err
	}
	if len(v) != 1 {
		return false, &ReplyError{fmt.Sprintf("%d integers for one process", len(v))}
	}
	return v[0] == 2, nil
}
