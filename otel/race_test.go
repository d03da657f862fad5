//go:build race

package holdfastotel_test

const raceEnabled = true
