package redistest

import (
	"os"
	"strings"
	"testing"
)

// Section puts a text into a document, between the lines <!-- name --> and <!-- end -->.
func Section(t testing.TB, file, name, text string) {
	t.Helper()
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), "<!-- "+name+" -->\n")
	_, after, there := strings.Cut(rest, "<!-- end -->")
	if !ok || !there {
		t.Fatalf("%s has no section %q", file, name)
	}
	if err := os.WriteFile(file, []byte(before+"<!-- "+name+" -->\n\n"+text+"\n<!-- end -->"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
