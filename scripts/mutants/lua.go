package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// edited is a change of a script: what is there at a place becomes something else.
type edited struct {
	path    string // of the file, below its package
	at      int
	was, is string
}

// luaTokens are the tokens of a script, of which comments and strings are not changed.
var luaTokens = regexp.MustCompile(`--[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[A-Za-z_][\w.]*|\d+(?:\.\d+)?|[<>=~]=|\.\.|[^\s\w]`)

// luaBecomes are other operators and functions of the same kind.
var luaBecomes = map[string]string{
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "==", "+": "-", "-": "+", "*": "/", "/": "*", "%": "/",
	"and": "or", "or": "and", "not": "", "min": "max", "max": "min", "floor": "ceil", "ceil": "floor",
	"math.min": "math.max", "math.max": "math.min", "math.floor": "math.ceil", "math.ceil": "math.floor", "true": "false", "false": "true",
}

var (
	luaFunction = regexp.MustCompile(`^(math\.)?(min|max|floor|ceil)$`)
	// luaSign is what comes before a sign, and not before a subtraction.
	luaSign = regexp.MustCompile(`^(and|or|not|return|then|else|do|if|elseif|while|[-+*/%<>=~,({;]+)?$`)
)

// luaStatement is a line that does something by itself: it calls a function, or assigns to what was there before.
var luaStatement = regexp.MustCompile(`^\s*([A-Za-z_][\w.\[\]# ,]*=[^=].*|[A-Za-z_][\w.]*\(.*\))$`)

var luaKeyword = regexp.MustCompile(`^\s*(local|return|if|elseif|else|end|for|while|repeat|until|function)\b|\b(then|do|end|function)\b|[,({]\s*$|\b(and|or)\s*$`)

// loadScripts makes the changes of the scripts that a package embeds, and lets it read them so.
func (p *source) loadScripts(dir string) error {
	paths, err := filepath.Glob(filepath.Join(p.root, dir, "scripts", "*.lua"))
	if err != nil || len(paths) == 0 {
		return err
	}
	const reads, read = "sources.ReadFile(", "mutantsRead("
	n := 0
	for path, text := range p.texts {
		n += strings.Count(text, reads)
		p.texts[path] = strings.ReplaceAll(text, reads, read)
	}
	if n == 0 {
		return errors.New("no code reads sources.ReadFile(: the scripts cannot be changed")
	}
	slices.Sort(paths)
	same := map[string]int{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := "scripts/" + filepath.Base(path)
		for _, e := range luaEdits(string(text)) {
			line := 1 + strings.Count(string(text[:e.at]), "\n")
			of := strings.TrimSpace(strings.Split(string(text), "\n")[line-1])
			becomes := e.is
			if becomes == "" {
				becomes = "nothing"
			}
			id := fmt.Sprintf("%s %s: %s => %s", filepath.ToSlash(filepath.Join(dir, name)), cut(of), cut(strings.TrimSpace(e.was)), becomes)
			if same[id]++; same[id] > 1 {
				id += fmt.Sprintf(" #%d", same[id])
			}
			e.path = name
			p.changes = append(p.changes, &change{n: len(p.changes) + 1, id: id, line: line})
			p.scripts = append(p.scripts, e)
		}
	}
	return nil
}

// luaEdits lists the changes of a script.
func luaEdits(text string) (all []edited) {
	before := "" // the token before
	for _, at := range luaTokens.FindAllStringIndex(text, -1) {
		token := text[at[0]:at[1]]
		if strings.HasPrefix(token, "--") {
			continue
		}
		is, found := luaBecomes[token]
		switch {
		case token == "-" && luaSign.MatchString(before):
			found = false
		case token[0] >= '0' && token[0] <= '9':
			is, found = "("+token+"+1)", true
		case luaFunction.MatchString(token):
			found = strings.HasPrefix(text[at[1]:], "(") // it is called, and not given a name
		}
		if found {
			all = append(all, edited{at: at[0], was: token, is: is})
		}
		before = token
	}
	at := 0
	for line := range strings.Lines(text) {
		if bare := strings.TrimRight(line, "\n"); luaStatement.MatchString(bare) && !luaKeyword.MatchString(bare) && strings.Count(bare, "(") == strings.Count(bare, ")") && !strings.Contains(bare, "--") {
			all = append(all, edited{at: at, was: bare})
		}
		at += len(line)
	}
	return all
}

// cut is a text that is not long.
func cut(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 70 {
		s = string(r[:67]) + "..."
	}
	return s
}

// scriptChooser is compiled into a package that embeds scripts: it reads them with the change that is made.
func (p *source) scriptChooser() string {
	if len(p.scripts) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\nvar mutantsScripts = []struct {\n\tn, at int\n\tpath, was, is string\n}{\n", p.name)
	first := len(p.changes) - len(p.scripts)
	for i, e := range p.scripts {
		fmt.Fprintf(&b, "\t{%d, %d, %q, %q, %q},\n", first+i+1, e.at, e.path, e.was, e.is)
	}
	b.WriteString(`}

func mutantsRead(path string) ([]byte, error) {
	b, err := sources.ReadFile(path)
	for _, e := range mutantsScripts {
		if e.path == path && mutated(e.n) {
			return []byte(string(b[:e.at]) + e.is + string(b[e.at+len(e.was):])), err
		}
	}
	return b, err
}
`)
	return b.String()
}
