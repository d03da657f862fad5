// Webhooks: a delivery that its receiver rejects for now comes back when the receiver said, one
// that fails comes back later, and one that always fails becomes a dead letter.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/httpclient"
)

type delivery struct {
	url      string
	attempts int
	ready    time.Time
}

// send returns how long to wait before the next attempt, or that it was delivered.
func send(client *http.Client, d delivery) (again time.Duration, delivered bool) {
	resp, err := client.Post(d.url, "application/json", bytes.NewReader([]byte(`{"event":"paid"}`)))
	var notSent *httpclient.Error
	switch {
	case errors.As(err, &notSent): // its host asked for a pause, or fails
		return notSent.Wait, false
	case err != nil:
		return time.Second, false
	}
	defer resp.Body.Close()
	wait, ok := httpclient.Wait(resp)
	if !ok {
		wait = 50 * time.Millisecond << d.attempts
	}
	return wait, resp.StatusCode < 300
}

func main() {
	var asked atomic.Int64
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer busy.Close()
	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()

	// The queue repeats and waits, so the client does not.
	client, err := httpclient.NewClient(httpclient.WithAttempts(1), httpclient.WithMaxWait(0))
	if err != nil {
		log.Fatal(err)
	}
	queue := []delivery{{url: busy.URL}, {url: broken.URL}, {url: busy.URL}}
	delivered, dead := 0, 0
	for len(queue) > 0 { // yours is in a database, ordered by time
		var d delivery
		d, queue = queue[0], queue[1:]
		time.Sleep(time.Until(d.ready))
		again, ok := send(client, d)
		d.attempts, d.ready = d.attempts+1, time.Now().Add(again)
		switch {
		case ok:
			delivered++
		case d.attempts == 4:
			dead++
		default:
			queue = append(queue, d)
		}
	}
	fmt.Println(delivered, "delivered,", dead, "dead letter,", asked.Load(), "requests to the busy receiver")
}

// Output:
// 2 delivered, 1 dead letter, 3 requests to the busy receiver
