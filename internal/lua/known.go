package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

// SHA returns the name under which Redis keeps a script's text.
func SHA(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// known are the scripts made at the start, by their SHA-1.
var known = func() map[string]string {
	m := map[string]string{}
	for _, set := range [][]*Script{scripts[:], backScripts[:], blockScripts[:], {allScript, acquireScript, keepScript, sampledScript, buryScript, beatScript}} {
		for _, s := range set {
			if s != nil {
				m[SHA(s.src)] = strings.TrimPrefix(s.name, functionPrefix)
			}
		}
	}
	return m
}()

// Known returns which script has that SHA-1, "" for none: for servers that execute the
// scripts by other means.
func Known(sha string) string {
	if name, ok := known[sha]; ok {
		return name
	}
	name := ""
	allScripts.Range(func(_, s any) bool {
		if s.(*Script).sha == any(sha) {
			name = strings.TrimPrefix(s.(*Script).name, functionPrefix)
		}
		return name == ""
	})
	return name
}
