package lua

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/algo"
)

// maxID is the length from which an encoded id is replaced by its hash.
const maxID = 128

// Keys name what Redis keeps for one id under one algorithm: one key, which holds all
// that a decision needs. So a hash slot of a cluster can be moved while it is in use.
type Keys struct {
	state string // what stands before the id
	id    string // encoded
}

// ID is the encoded id that the key is of.
func (k Keys) ID() string { return k.id }

// State is the key.
func (k Keys) State() string { return k.state + k.id + "}" }

// Namer makes keys: prefix:v2:algorithm:{id}. The number is that of what stands under them.
type Namer struct {
	prefix string
	state  [len(algo.Kinds) + 1]string
}

// NewNamer returns the namer of a prefix, which must pass CheckPrefix.
func NewNamer(prefix string) *Namer {
	n := &Namer{prefix: prefix}
	for _, k := range algo.Kinds {
		n.state[k] = prefix + ":v2:" + k.Short() + ":{"
	}
	return n
}

// KeysOf names the keys of an encoded id under an algorithm.
func (n *Namer) KeysOf(k algo.Kind, id string) Keys { return Keys{state: n.state[k], id: id} }

// of names what is no state of a limit, of an encoded id: prefix:v1:what:{id}.
func (n *Namer) of(what, id string) string { return n.prefix + ":v1:" + what + ":{" + id + "}" }

// Probe names a key in the hash slot of an encoded id, which shows that writes work.
func (n *Namer) Probe(id string) string { return n.of("probe", id) }

// Learnt names what is learnt of the quotas of an encoded id.
func (n *Namer) Learnt(id string) string { return n.of("learnt", id) }

// Limits names a table of limits that a fleet obeys.
func (n *Namer) Limits(table string) string { return n.of("limits", table) }

// Peers is the i-th key under which the processes of a prefix find each other.
func (n *Namer) Peers(i int) string {
	if i == 0 {
		return n.prefix + ":v1:peers"
	}
	return n.prefix + ":v1:peers:" + strconv.Itoa(i)
}

// Back is the key of those who are back from an outage, for a limiter by its name, in the hash
// slot of one of Peers.
func (n *Namer) Back(peers, limiter string) string { return n.of("back:"+limiter, peers) }

// CheckPrefix returns the rule that prefix breaks, or "".
func CheckPrefix(prefix string) string {
	switch {
	case prefix == "":
		return "must not be empty"
	case len(prefix) > 64:
		return "must be at most 64 bytes"
	case special(prefix) > 0:
		return "must not contain braces, percent signs, spaces or control bytes"
	}
	return ""
}

// plain bytes stand for themselves in an encoded id.
func plain(b byte) bool {
	return b > ' ' && b != 0x7f && b != '{' && b != '}' && b != '%'
}

// special is how many bytes are not plain.
func special(s string) (n int) {
	for i := range len(s) {
		if !plain(s[i]) {
			n++
		}
	}
	return n
}

// EncodeID makes an id safe between the braces of a hash tag: what is not plain
// becomes %XX, and what is long becomes %h and its SHA-256. Different ids have
// different encodings ("%h" is not a byte in hexadecimal).
func EncodeID(id string) string {
	escapes := special(id)
	if len(id)+2*escapes > maxID {
		sum := sha256.Sum256([]byte(id))
		return "%h" + hex.EncodeToString(sum[:])
	}
	if escapes == 0 {
		return id
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(id) + 2*escapes)
	for i := range len(id) {
		if c := id[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}
