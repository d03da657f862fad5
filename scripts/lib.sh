# What the scripts share: each module on its own, and compiled packages that any clone
# finds in the build cache.
export GOWORK=off
GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS

# Not bench/sdks, whose SDKs take minutes to compile: make sdks tests it.
modules() {
	find . -name go.mod -not -path '*/testdata/*' -not -path './bench/sdks/*' | sort | sed 's,/go.mod$,,'
}

unformatted() {
	found=$(gofmt -l $(git ls-files '*.go' 2>/dev/null || true))
	[ -z "$found" ] || echo "gofmt would change:" $found
}
