package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// maxListeners bounds how many pages may be open at once.
	maxListeners = 16
	// backlog is how many events a page may be behind before it is let go. It connects
	// again, and starts from the whole state.
	backlog = 256
)

// hub hands events to all who listen. The zero value is ready.
type hub struct {
	mu        sync.Mutex
	listeners map[chan []byte]struct{}
	closed    bool
}

// listen returns a channel of events, or nil when there are too many listeners. It is
// closed when its listener is too slow, or the hub is closed.
func (h *hub) listen() chan []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.listeners) >= maxListeners {
		return nil
	}
	if h.listeners == nil {
		h.listeners = map[chan []byte]struct{}{}
	}
	ch := make(chan []byte, backlog)
	h.listeners[ch] = struct{}{}
	return ch
}

func (h *hub) leave(ch chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.listeners[ch]; there {
		delete(h.listeners, ch)
		close(ch)
	}
}

// publish never waits for a listener.
func (h *hub) publish(name string, v any) {
	event := encode(name, v)
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.listeners {
		select {
		case ch <- event:
		default:
			delete(h.listeners, ch)
			close(ch)
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for ch := range h.listeners {
		delete(h.listeners, ch)
		close(ch)
	}
}

// encode makes a server-sent event of one line of JSON.
func encode(name string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil { // of our own structs: never
		data = []byte("null")
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, data)
	return b.Bytes()
}

// events streams the whole state, and from then on what changes.
func (a *app) events(w http.ResponseWriter, r *http.Request) error {
	// Before the state is taken, so that no change of it is missed.
	ch := a.hub.listen()
	if ch == nil {
		w.Header().Set("Retry-After", "5")
		return broken(http.StatusServiceUnavailable, "listeners", maxListeners, fmt.Sprintf("must be at most %d; close a page", maxListeners))
	}
	defer a.hub.leave(ch)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	send := func(event []byte) error {
		// One that does not read must not keep its place.
		if err := out.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := w.Write(event); err != nil {
			return err
		}
		return out.Flush()
	}
	if send(append([]byte("retry: 1000\n"), encode("state", a.snapshot())...)) != nil {
		return nil
	}
	for {
		select {
		case <-r.Context().Done():
			return nil
		case event, open := <-ch:
			if !open || send(event) != nil {
				return nil
			}
		}
	}
}
