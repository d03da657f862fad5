package limits

import "context"

// Read reads the table now, as a run of the interval does.
func (w *Watcher) Read(ctx context.Context) { w.read(ctx) }
