//go:build !race

package holdfast_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// banned are words that readers have to guess, or that have another word here, and what to
// say instead. One word has one meaning, also for readers whose English is a second
// language.
var banned = []struct{ word, say string }{
	{`good-?bye`, "deregister"},
	{`greet\w*`, "register"},
	{`(is|are|be|been|being|was|were|not) told`, "gets, receives, knows"},
	{`told of`, "knows, receives"},
	{`tells? (nobody|of)`, "reports, describes"},
	{`(is|are) no matter|of no (concern|interest|matter)`, "does not matter"},
	{`in vain`, "without an answer"},
	{`for want of`, "because there is no"},
	{`sick`, "unavailable"},
	{`nobody|somebody|everybody|whoever`, "no caller, another caller, the caller that"},
	{`(those )?for whom|of whom|whose turn`, "the callers that"},
	{`hair|hearsay`, "slightly, what others say"},
	{`but for|for ever`, "except, for as long as"},
	{`looked through`, "read"},
	{`(hears?|heard) of`, "knows, receives"},
	{`(of late|anew|heeds?|heeded)`, "recently, again, obeys"},
	{`rid of`, "without"},
	{`in a row`, "consecutive"},
	{`all the same`, "still"},
	{`yet to (be|learn)`, "not yet"},
	{`worth (a|its) while`, "useful"},
	{`believes?d?`, "assumes, trusts, uses"},
	{`looks? (at|back|like|through|up)|looked (at|up)|looking at`, "peek, read, check"},
	{`(?:a|this|that) look`, "peek"},
	{`refus(al|als|e|es|ing)`, "reject (HTTP, gRPC), deny (limiter)"},
	{`regrets?|hurry|scrapes?`, "what it does"},
	{`slots? (are|is) (held|free|freed|released)|(free|hold|holds|held|release) (a|the|its) slots?`, "permit"},
}

// allowedWords are places where a banned word is right.
var allowedWords = map[string]string{
	"internal/faultproxy/mode.go":        "Refuse", // the name of a field
	"internal/roundtrippertest/suite.go": "NoBody", // of net/http
}

// TestPlainWords reads the documents, and the comments and texts of all code but that of
// tests.
func TestPlainWords(t *testing.T) {
	rules := make([]*regexp.Regexp, len(banned))
	for i, b := range banned {
		rules[i] = regexp.MustCompile(`(?i)(^|[^\w-])(` + b.word + `)($|[^\w-])`)
	}
	texts := 0
	check := func(where, text string) {
		texts++
		text = strings.Join(strings.Fields(text), " ")
		for i, rule := range rules {
			if m := rule.FindStringSubmatch(text); m != nil && (allowedWords[where] == "" || !strings.Contains(m[2], allowedWords[where])) {
				t.Errorf("%s says %q; better: %s\n\t%s", where, m[2], banned[i].say, around(text, m[2]))
			}
		}
	}
	for _, name := range append(handbook(t), "CHANGELOG.md") {
		text := fences.ReplaceAllString(read(t, name), "")
		for _, paragraph := range strings.Split(text, "\n\n") {
			check(name, regexp.MustCompile("`[^`]*`").ReplaceAllString(paragraph, "CODE"))
		}
	}
	goFiles(t, ".", func(path string, _ *ast.File) {
		if !strings.HasSuffix(path, "_test.go") {
			for _, text := range proseOf(t, path) {
				check(path, text)
			}
		}
	})
	scripts, err := filepath.Glob("internal/lua/scripts/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		check(path, strings.ReplaceAll(read(t, path), "--", ""))
	}
	if texts < 1000 {
		t.Errorf("only %d texts were read", texts)
	}
}

// proseOf returns the comments of a file, and its texts of several words.
func proseOf(t *testing.T, path string) (out []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Comments {
		out = append(out, c.Text())
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(text, " ") {
				out = append(out, text)
			}
		}
		return true
	})
	return out
}

// around is the text next to a word.
func around(text, word string) string {
	i := strings.Index(text, word)
	return text[max(0, i-60):min(len(text), i+len(word)+60)]
}
