// Package sdks tests that httpclient works below the SDKs that docs/sdks.md names: how many
// requests are sent in all, and that their typed errors survive. It is not in go.work: run it with
// GOWORK=off, as make test does.
package sdks
