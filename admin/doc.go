// Package admin is the command holdfast as an http.Handler, for a port that only operators reach.
//
//	h, err := admin.Handler(rdb)
//	...
//	mux.Handle("/holdfast/", http.StripPrefix("/holdfast", h)) // behind your own authentication
//
// It answers in JSON what the command prints with -json:
//
//	GET  /check                                  what in this Redis will hurt
//	GET  /fleet                                  the processes that share the limits
//	GET  /top?n=20&key=K                         the keys that the fleet denies most
//	GET  /inspect?key=K&limit=TEXT&shards=N      what is stored for a key
//	GET  /limits?table=T                         the tables of named limits
//
// and with WithWrites also, with a body in JSON:
//
//	POST /block    {"key": "K", "for": "1h", "algorithm": "", "shards": 0}
//	POST /unblock  {"key": "K"}
//	POST /reset    {"key": "K", "permits": false}
//	POST /limits   {"table": "T", "name": "gold", "limit": "200/s burst 400"}, or "limit": "" to remove it
package admin
