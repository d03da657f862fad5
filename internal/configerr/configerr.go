// Package configerr is the one form of the errors of configuration: which value of which
// field breaks which rule.
package configerr

import "fmt"

// Error is an error of configuration inside the module. Each package that users hold
// has a ConfigError of its own with the same fields, to which it is converted.
type Error struct {
	Field string
	Value any
	Rule  string
}

// New returns an Error whose rule is formatted.
func New(field string, value any, rule string, args ...any) *Error {
	if len(args) > 0 {
		rule = fmt.Sprintf(rule, args...)
	}
	return &Error{field, value, rule}
}

// Error names field, value and rule.
func (e *Error) Error() string {
	return fmt.Sprintf("%s is %v: %s", e.Field, e.Value, e.Rule)
}

// Text returns what the ConfigError of a package says.
func (e *Error) Text(pkg string) string { return pkg + ": " + e.Error() }

// Option is the error of an option that is nil.
func Option() *Error { return New("option", "nil", "must not be nil") }
