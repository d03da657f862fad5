package main

import (
	"strconv"
	"strings"
)

// safe shows what callers and programs have named, without what would change the terminal.
func safe(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) || r == 0xfffd }) {
		return strconv.Quote(text)
	}
	return text
}
