//go:build !race

package holdfast_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisproc"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/limiter"
)

// logLine is a line that the library can write.
type logLine struct{ pkg, message, level, attributes string }

// TestEveryLogLineIsExplained: the table of docs/operations.md is that of the calls of
// loggers in the source.
func TestEveryLogLineIsExplained(t *testing.T) {
	written := map[logLine]bool{}
	for _, dir := range libraryDirs(t) {
		goFiles(t, dir, func(path string, f *ast.File) {
			if strings.HasSuffix(path, "_test.go") {
				return
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(fn, func(n ast.Node) bool {
					if call, ok := n.(*ast.CallExpr); ok {
						if line, ok := logged(t, path, fn, call); ok {
							dir := path[:strings.LastIndex(path, "/")]
							line.pkg = dir[strings.LastIndex(dir, "/")+1:]
							written[line] = true
						}
					}
					return true
				})
			}
		})
	}
	explained := map[logLine]bool{}
	row := regexp.MustCompile("(?m)^\\| `([\\w/]+)` \\| `(holdfast: [^`]*)` \\| (\\w+) \\| ([`\\w ]+) \\| ([^|]{5,}) \\| ([^|]{5,}) \\|$")
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/operations.md"), -1) {
		explained[logLine{m[1], m[2], m[3], strings.ReplaceAll(m[4], "`", "")}] = true
	}
	if len(written) < 5 {
		t.Errorf("only %d calls of loggers were found", len(written))
	}
	for line := range written {
		if !explained[line] {
			t.Errorf("docs/operations.md does not explain %+v", line)
		}
	}
	for line := range explained {
		if !written[line] {
			t.Errorf("docs/operations.md explains %+v, which nothing writes", line)
		}
	}
}

// libraryDirs are the directories of packages that programs use.
func libraryDirs(t *testing.T) []string {
	t.Helper()
	dirs := []string{"grpc", "otel"}
	for pkg := range imports {
		if dir, _, _ := strings.Cut(pkg, "/"); dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// logged reads a call of a logger.
func logged(t *testing.T, path string, fn *ast.FuncDecl, call *ast.CallExpr) (logLine, bool) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return logLine{}, false
	}
	on := ""
	switch x := sel.X.(type) {
	case *ast.Ident:
		on = x.Name
	case *ast.SelectorExpr:
		on = x.Sel.Name
	}
	if on != "logger" && on != "slog" {
		return logLine{}, false
	}
	method, args := strings.TrimSuffix(sel.Sel.Name, "Context"), call.Args
	if method != sel.Sel.Name {
		args = args[1:]
	}
	switch method {
	case "Debug", "Info", "Warn", "Error":
	case "Log", "LogAttrs":
		level, ok := args[1].(*ast.SelectorExpr)
		if !ok {
			t.Errorf("%s: a level that is not a constant", path)
			return logLine{}, false
		}
		method, args = strings.TrimPrefix(level.Sel.Name, "Level"), args[2:]
	default:
		return logLine{}, false
	}
	message, ok := text(args[0])
	if !ok {
		t.Errorf("%s: a message that is not a constant", path)
		return logLine{}, false
	}
	return logLine{message: message, level: strings.ToLower(method), attributes: strings.Join(keys(t, path, fn, args[1:]), " ")}, true
}

func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// keys are those of pairs, of slog.Attrs, and of a slice made of pairs and appended to.
func keys(t *testing.T, path string, fn *ast.FuncDecl, args []ast.Expr) (out []string) {
	for i := 0; i < len(args); i++ {
		switch a := args[i].(type) {
		case *ast.BasicLit:
			key, _ := text(a)
			out = append(out, key)
			i++ // its value
		case *ast.CallExpr:
			if name, ok := a.Fun.(*ast.Ident); ok && name.Name == "append" {
				out = append(out, keys(t, path, fn, a.Args)...)
			} else { // slog.String and its like
				out = append(out, keys(t, path, fn, a.Args[:1])...)
			}
		case *ast.Ident:
			ast.Inspect(fn, func(n ast.Node) bool {
				if set, ok := n.(*ast.AssignStmt); ok && set.Tok == token.DEFINE {
					if made, ok := set.Rhs[0].(*ast.CompositeLit); ok && set.Lhs[0].(*ast.Ident).Name == a.Name {
						out = append(out, keys(t, path, fn, made.Elts)...)
					}
				}
				return true
			})
		default:
			t.Errorf("%s: attributes of a log line that cannot be read", path)
		}
	}
	return out
}

var rights = regexp.MustCompile(`(?m)^    (~holdfast.*\n(?:    \+.*\n)+)`)

// rightsOf is the list of least rights in a document.
func rightsOf(t *testing.T, name string) []string {
	t.Helper()
	m := rights.FindStringSubmatch(read(t, name))
	if m == nil {
		t.Fatalf("%s has no list of rights", name)
	}
	return strings.Fields(m[1])
}

// TestPermissionsAreThoseTested: docs/operations.md has the minimum ACL permissions that the
// tests run with; so are the additions.
func TestPermissionsAreThoseTested(t *testing.T) {
	list := rightsOf(t, "docs/operations.md")
	source := read(t, "limiter/topology_test.go")
	constant := func(name string) string {
		m := regexp.MustCompile(name + `\s+= "([^"]*)"`).FindStringSubmatch(source)
		if m == nil {
			t.Fatalf("limiter/topology_test.go has no %s", name)
		}
		return m[1]
	}
	tested := strings.Fields("~holdfast:* -@all " + constant("handshake") + " +evalsha +evalsha_ro +eval +eval_ro +del " + constant("inScripts"))
	if !slices.Equal(list, tested) {
		t.Errorf("documented:\n%v\ntested:\n%v", list, tested)
	}
	for _, part := range []string{"~holdfast:* -@all \" + handshake + \" +evalsha +evalsha_ro +eval +eval_ro +del \" + inScripts", "+fcall +fcall_ro +function|load"} {
		if !strings.Contains(source, part) {
			t.Errorf("the tests do not run with %s", part)
		}
	}
	page := strings.ReplaceAll(read(t, "docs/operations.md"), `\|`, "|")
	for _, more := range []string{constant("inPermits"), constant("inSampled"), "+fcall +fcall_ro +function|load", clusterRight, ringRight} {
		if !strings.Contains(page, "`"+more+"`") {
			t.Errorf("docs/operations.md does not have the rights %s", more)
		}
	}
}

const clusterRight, ringRight = "+cluster|slots +command", "+ping"

// TestPermissionsOfClusterAndRing: with these rights in addition such clients work.
func TestPermissionsOfClusterAndRing(t *testing.T) {
	user := "user limiter on >secret " + strings.Join(rightsOf(t, "docs/operations.md"), " ") + " "
	c := redistest.StartCluster(t, 2, 0)
	for _, m := range c.Masters {
		set := []any{"acl", "setuser"}
		for right := range strings.FieldsSeq(strings.TrimPrefix(user, "user ") + clusterRight) {
			set = append(set, right)
		}
		if err := redistest.Admin(t, m).Do(context.Background(), set...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	cluster := func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Username: "limiter", Password: "secret"})
	}
	if n := decidedByRedis(t, cluster()); n < 20 {
		t.Errorf("%d of 20 decisions were made by a cluster", n)
	}
	for _, m := range c.Masters {
		if err := redistest.Admin(t, m).Do(context.Background(), "acl", "setuser", "limiter", "-cluster|slots").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if n := decidedByRedis(t, cluster()); n > 0 {
		t.Errorf("%d decisions were made without knowing the slots", n)
	}
	srv := redistest.StartWith(t, redisproc.Options{Config: [][]string{strings.Fields(user + ringRight)}})
	beats := make(chan bool)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": srv.Addr()}, Username: "limiter", Password: "secret", HeartbeatFrequency: 20 * time.Millisecond,
		HeartbeatFn: func(ctx context.Context, node *redis.Client) bool {
			up := node.Ping(ctx).Err() == nil
			select {
			case beats <- up:
			default:
			}
			return up
		},
	})
	for range 5 {
		if !<-beats {
			t.Fatal("the ring takes its node for down")
		}
	}
	if n := decidedByRedis(t, ring); n < 20 {
		t.Errorf("%d of 20 decisions were made by a ring", n)
	}
}

// decidedByRedis is how many of 20 decisions were, and closes the client.
func decidedByRedis(t *testing.T, rdb redis.UniversalClient) (n int) {
	t.Helper()
	lim, err := limiter.New(rdb, limiter.GCRA(limiter.PerHour(10), 10), limiter.WithBudget(2*time.Second), limiter.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		res, err := lim.Allow(t.Context(), fmt.Sprint("key", i))
		if err != nil {
			t.Fatal(err)
		}
		if res.Source == limiter.SourceRedis {
			n++
		}
	}
	_ = lim.Close()
	_ = rdb.Close()
	return n
}

// TestSizesAreThoseMeasured: the figures of docs/operations.md are those of
// docs/redis.md, which a command wrote.
func TestSizesAreThoseMeasured(t *testing.T) {
	measured, page := read(t, "docs/redis.md"), read(t, "docs/operations.md")
	section := func(title string) string {
		_, after, ok := strings.Cut(measured, "**"+title+"**")
		if !ok {
			t.Fatalf("docs/redis.md has no table %q", title)
		}
		body, _, _ := strings.Cut(after, "\n**")
		return body
	}
	bytes, speed := map[string]string{}, map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \| (\d+) \|$`).FindAllStringSubmatch(section("Redis memory of a key used once"), -1) {
		bytes[m[1]] = m[2]
	}
	for line := range strings.Lines(section("64 callers, by algorithm")) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) > 11 {
			speed[strings.TrimPrefix(cells[0], "| ")] = cells
		}
	}
	found := 0
	for _, name := range slices.Sorted(maps.Keys(speed)) {
		if bytes[name] == "" || strings.HasPrefix(name, "plain") {
			continue
		}
		found++
		if row := fmt.Sprintf("| %s | %s | %s | %s |\n", name, bytes[name], speed[name][1], speed[name][10]); !strings.Contains(page, row) {
			t.Errorf("docs/operations.md does not have the row\n%s", row)
		}
	}
	if found != 7 {
		t.Errorf("%d algorithms in docs/redis.md", found)
	}
}

// TestAlertsAreAboutMetricsThatExist: their names are those of the package otel, as
// Prometheus spells them.
func TestAlertsAreAboutMetricsThatExist(t *testing.T) {
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^//\s+(holdfast\.[\w.]+)\s+(\S+)\s+(counter|histogram|gauge): (.*)$`).FindAllStringSubmatch(read(t, "otel/doc.go"), -1) {
		name := strings.ReplaceAll(m[1], ".", "_")
		if m[2] == "s" {
			name += "_seconds"
		}
		switch m[3] {
		case "counter":
			known[name+"_total"] = true
		case "gauge":
			known[name] = true
		case "histogram":
			known[name+"_count"], known[name+"_bucket"] = true, true
		}
		for label := range strings.FieldsFuncSeq(m[4], func(r rune) bool { return r == ',' || r == ' ' || r == ';' }) {
			known["holdfast_"+strings.ReplaceAll(label, ".", "_")] = true
		}
	}
	alerts := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(read(t, "docs/operations.md"))
	if alerts == nil {
		t.Fatal("docs/operations.md has no alerts")
	}
	names := regexp.MustCompile(`\bholdfast_\w+`).FindAllString(alerts[1], -1)
	if len(names) < 10 {
		t.Errorf("only %v", names)
	}
	for _, name := range names {
		if !known[name] {
			t.Errorf("the alerts ask for %s, which otel/doc.go does not have", name)
		}
	}
}
