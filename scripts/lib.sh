# What the scripts share: each module on its own, and compiled packages that any clone
# finds in the build cache.
export GOWORK=off
GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS

# A test with the race detector waits for a second at its end, for goroutines that are left: the tests look for those themselves.
export GORACE=atexit_sleep_ms=0

# Not what takes minutes to compile: make sdks tests bench/sdks, and make recipes the adapters.
modules() {
	find . -name go.mod -not -path '*/testdata/*' -not -path './bench/sdks/*' -not -path './docs/recipes/adapters/*' | sort | sed 's,/go.mod$,,'
}

unformatted() {
	found=$(gofmt -l $(git ls-files '*.go' 2>/dev/null || true))
	[ -z "$found" ] || echo "gofmt would change:" $found
}
