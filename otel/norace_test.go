//go:build !race

package holdfastotel_test

const raceEnabled = false
