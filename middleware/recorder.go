package middleware

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
)

// recorder is a ResponseWriter that remembers the status of its response.
type recorder struct {
	http.ResponseWriter
	status int // 0: nothing was written
}

// code returns the status that the client gets.
func (w *recorder) code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

// begin notes the status; what is informational is followed by another one.
func (w *recorder) begin(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
}

// WriteHeader writes the status.
func (w *recorder) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write writes a piece of the body.
func (w *recorder) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// ReadFrom writes a body that the server may copy without us. One that cannot be read from its begin leaves the status open.
func (w *recorder) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(w.ResponseWriter, r)
	if n > 0 {
		w.begin(http.StatusOK)
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError sends what was written.
func (w *recorder) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) { // which sends nothing
		w.begin(http.StatusOK)
	}
	return err
}

// Flush is FlushError for those who take an http.Flusher.
func (w *recorder) Flush() { _ = w.FlushError() }

// Hijack takes the connection over.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}
