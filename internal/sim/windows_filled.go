package sim

// windows is what Redis has charged in the fixed windows of keys, by its clock.
type windows struct {
	of     map[string]filled // by the key in Redis: the window that was charged last
	unsure bool              // a clock has stepped: what they hold is not known exactly
}

// filled is what is charged in a window that ends then.
type filled struct {
	end, units int64
	unsure     bool // more or less may be charged there
}

// charge notes that a key is charged now, and returns what its window then has.
func (f *windows) charge(key string, units int64, r *rule, now int64) filled {
	w := f.of[key]
	if end := r.window(now); w.end != end {
		w.end, w.units = end, 0
	}
	w.unsure = w.unsure || f.unsure
	w.units += units
	f.of[key] = w
	return w
}

// lost notes that a key is, or that an older state of it was restored.
func (f *windows) lost(key string) { f.of[key] = filled{unsure: true} }

// stepped notes that a clock has.
func (f *windows) stepped() {
	clear(f.of)
	f.unsure = true
}
