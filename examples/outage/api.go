package main

import (
	"net"
	"net/http"
	"sync/atomic"
)

// api is the service of a third party with a published limit: it counts what reaches
// it, since it would have to answer 429 to what is too much.
type api struct {
	calls  atomic.Int64
	server *http.Server
	url    string
}

func startAPI() (*api, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &api{url: "http://" + l.Addr().String()}
	a.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a.calls.Add(1)
		w.WriteHeader(http.StatusNoContent)
	})}
	go func() { _ = a.server.Serve(l) }()
	return a, nil
}
