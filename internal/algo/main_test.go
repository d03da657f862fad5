package algo

import (
	"flag"
	"os"
	"testing"
)

// TestMain raises the number of random checks: a step costs nanoseconds.
func TestMain(m *testing.M) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.checks" })
	if !set {
		_ = flag.Set("rapid.checks", "5000")
	}
	os.Exit(m.Run())
}
