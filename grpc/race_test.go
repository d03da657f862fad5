//go:build race

package holdfastgrpc_test

const raceEnabled = true
