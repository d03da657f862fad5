//go:build !race

package holdfast_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/holdfast-go/holdfast"

// imports is the direction in which packages may import each other: only to
// what stands here for them. A new package needs a line of its own.
var imports = map[string][]string{
	"":                          nil,
	"internal/algo":             {"internal/configerr", "internal/enum"},
	"internal/lua":              {"internal/algo"},
	"fallback":                  {"internal/configerr", "internal/enum"},
	"internal/inprocess":        {"internal/algo"},
	"internal/random":           nil,
	"calendar":                  {"internal/configerr", "internal/enum"},
	"internal/repeat":           nil,
	"breaker":                   {"internal/chain", "internal/configerr", "internal/enum", "internal/random"},
	"internal/configerr":        nil,
	"internal/enum":             {"internal/configerr"},
	"internal/critical":         nil,
	"internal/wait":             {"internal/random"},
	"retry":                     {"internal/chain", "internal/configerr", "internal/enum", "internal/random", "internal/wait"},
	"internal/redislink":        {"internal/chain", "internal/random", "internal/algo", "internal/configerr", "internal/lua", "breaker", "fallback"},
	"internal/denial":           {"internal/algo"},
	"internal/lease":            {"internal/algo", "internal/lua", "internal/repeat"},
	"internal/outbox":           {"internal/random", "internal/algo", "internal/lua", "internal/redislink", "internal/inprocess"},
	"internal/options":          {"internal/configerr", "internal/redislink"},
	"limiter":                   {"internal/critical", "internal/enum", "internal/algo", "internal/configerr", "internal/denial", "internal/lease", "internal/lua", "internal/outbox", "internal/redislink", "internal/options", "internal/chain", "internal/random", "internal/wait", "internal/inprocess", "calendar", "fallback", "breaker"},
	"semaphore":                 {"internal/critical", "internal/random", "internal/repeat", "internal/configerr", "internal/lua", "internal/redislink", "internal/options", "limiter", "fallback"},
	"sampled":                   {"internal/random", "internal/algo", "internal/configerr", "internal/lua", "internal/redislink", "internal/repeat", "internal/options", "internal/topk", "limiter", "internal/inprocess", "fallback"},
	"limiter/limitertest":       {"limiter"},
	"internal/roundtrippertest": nil,
	"httpclient":                {"internal/admission", "internal/discovery", "internal/chain", "internal/configerr", "retry", "limiter"},
	"internal/discovery":        {"internal/admission", "internal/algo", "internal/configerr", "internal/random", "internal/lua", "internal/options", "internal/redislink", "limiter", "retry"},
	"middleware":                {"internal/chain", "internal/configerr", "internal/enum", "internal/inbound", "limiter", "semaphore"},
	"internal/inbound":          {"internal/configerr", "limiter", "semaphore"},
	"analytics":                 {"internal/configerr", "internal/lua", "internal/random", "internal/redislink", "internal/repeat", "internal/topk", "limiter"},
	"limits":                    {"breaker", "internal/configerr", "internal/lua", "internal/random", "internal/redislink", "internal/repeat", "limiter"},
	"internal/operator":         {"analytics", "breaker", "calendar", "internal/algo", "internal/configerr", "internal/lua", "internal/random", "internal/redislink", "limiter", "limits"},
	"admin":                     {"internal/configerr", "internal/operator", "internal/redislink", "limiter"},
	"cmd/holdfast":              {"analytics", "internal/operator", "internal/redislink", "limiter"},
	"internal/chain":            nil,
	"internal/topk":             nil,
	"internal/admission":        {"internal/chain", "internal/critical", "internal/configerr", "internal/wait", "limiter", "retry"},
	"internal/sim":              {"calendar", "sampled", "internal/algo", "internal/lua", "internal/redislink", "breaker", "limiter", "semaphore", "httpclient", "retry"},
	"internal/redisproc":        nil,
	"internal/redistest":        {"internal/faultproxy", "internal/redisproc"},
	"internal/faultproxy":       nil,
}

// requires is what packages may import from outside, beside the standard
// library.
var requires = map[string][]string{
	"internal/lua":       {"github.com/redis/go-redis/v9"},
	"limiter":            {"github.com/redis/go-redis/v9"},
	"semaphore":          {"github.com/redis/go-redis/v9"},
	"sampled":            {"github.com/redis/go-redis/v9"},
	"internal/redislink": {"github.com/redis/go-redis/v9"},
	"internal/inprocess": {"golang.org/x/time/rate"},
	"breaker":            {"github.com/sony/gobreaker/v2", "github.com/redis/go-redis/v9"},
	"middleware":         {"github.com/dunglas/httpsfv"},
	"retry":              {"github.com/cenkalti/backoff/v4", "golang.org/x/time/rate", "github.com/dunglas/httpsfv"},
	"internal/redisproc": {"github.com/redis/go-redis/v9"},
	"internal/discovery": {"github.com/redis/go-redis/v9"},
	"httpclient":         {"github.com/redis/go-redis/v9"},
	"internal/operator":  {"github.com/redis/go-redis/v9"},
	"cmd/holdfast":       {"github.com/redis/go-redis/v9", "github.com/redis/go-redis/v9/logging"},
	"analytics":          {"github.com/redis/go-redis/v9"},
	"admin":              {"github.com/redis/go-redis/v9"},
	"limits":             {"github.com/redis/go-redis/v9"},
	"internal/denial":    {"github.com/cespare/xxhash/v2"},
	"internal/sim":       {"github.com/redis/go-redis/v9"},
	"internal/redistest": {"github.com/redis/go-redis/v9", "go.uber.org/goleak"},
}

// TestImportsRunOneWay reads every file that is not a test of the root module.
func TestImportsRunOneWay(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != "." && (nested(path) || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		seen++
		pkg := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), ".")
		allowed, known := imports[pkg]
		if !known {
			t.Errorf("%s: the package %q has no line in the table of imports", path, pkg)
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			inside, ours := strings.CutPrefix(imported, module+"/")
			switch {
			case ours && !slices.Contains(allowed, inside):
				t.Errorf("%s imports %s: that runs the wrong way", path, inside)
			case !ours && strings.Contains(strings.Split(imported, "/")[0], ".") && !slices.Contains(requires[pkg], imported):
				t.Errorf("%s imports %s, which the package may not require", path, imported)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Errorf("only %d files were read", seen)
	}
}

func nested(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// TestDurationsAreMonotonic: what the library measures, it measures by the monotonic
// clock, so that a clock of the machine that steps silences nothing. Only windows that are
// aligned to the epoch begin from the wall clock, once, in newClock; and a client says by it which windows
// of a calendar it sends.
func TestDurationsAreMonotonic(t *testing.T) {
	wall := regexp.MustCompile(`\.(Unix|UnixNano|UnixMilli|UnixMicro|Round|Truncate)\(`)
	allowed := map[string]string{
		"internal/inprocess/store.go":  "base := start.UnixMicro()",
		"limiter/decide.go":            "until.Round(time.Microsecond)",      // a duration
		"internal/lua/client.go":       "func wall() int64",                  // for the windows of a calendar, which Redis checks by its own
		"limiter/calendar.go":          "unit.Start(number, loc)",            // where a window begins
		"limiter/errors.go":            "e.Remaining.Round(",                 // a duration
		"internal/admission/reason.go": "max(wait, time.Millisecond).Round(", // a duration
		"internal/discovery/quota.go":  "Truncate(time.Microsecond)",         // durations
		"grpc/rejection.go":            "down := d.Truncate(",                // a duration
		"httpclient/said.go":           "time.Now().Add(e.Wait).UnixMilli()", // for SDKs that read a time in a header
	}
	seen := 0
	for _, dir := range []string{"limiter", "semaphore", "sampled", "internal/inprocess", "breaker", "internal/redislink", "internal/lua", "internal/lease", "internal/outbox", "internal/repeat", "internal/wait", "internal/admission", "internal/denial", "internal/discovery", "fallback", "httpclient", "middleware", "grpc"} {
		goFiles(t, dir, func(path string, _ *ast.File) {
			if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "limitertest") {
				return
			}
			seen++
			for i, line := range strings.Split(read(t, path), "\n") {
				if m := wall.FindString(line); m != "" && !strings.Contains(line, "math.Round(") && !strings.Contains(line, "time.UnixMicro(") && (allowed[filepath.ToSlash(path)] == "" || !strings.Contains(line, allowed[filepath.ToSlash(path)])) {
					t.Errorf("%s:%d uses the wall clock: %s", path, i+1, strings.TrimSpace(line))
				}
			}
		})
	}
	if seen < 30 {
		t.Errorf("only %d files were read", seen)
	}
}
