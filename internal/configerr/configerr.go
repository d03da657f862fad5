// Package configerr is the one form of the errors of configuration: which value of which
// field breaks which rule.
package configerr

import (
	"errors"
	"fmt"
	"reflect"
)

// ErrInvalid is what every error of configuration matches. limiter.ErrInvalidConfig and
// retry.ErrInvalidConfig are it.
var ErrInvalid = errors.New("invalid configuration")

// Error is an error of configuration. Users test it for ErrInvalid, and read what it says.
type Error struct {
	Package string // of the constructor, or of the method, that the user has called
	Field   string
	Value   any
	Rule    string
}

// New returns an Error whose rule is formatted. The constructor that users call names its
// package with In.
func New(field string, value any, rule string, args ...any) error {
	if len(args) > 0 {
		rule = fmt.Sprintf(rule, args...)
	}
	return &Error{Field: field, Value: value, Rule: rule}
}

// Option is the error of an option that is nil.
func Option() error { return New("option", "nil", "must not be nil") }

// Apply applies options in order, of which none may be nil.
func Apply[C any, O ~func(*C)](c *C, opts []O) error {
	for _, o := range opts {
		if o == nil {
			return Option()
		}
		o(c)
	}
	return nil
}

// IsNil reports whether v, an argument that is needed, is nil or a nil pointer.
func IsNil(v any) bool {
	r := reflect.ValueOf(v)
	return v == nil || r.Kind() == reflect.Pointer && r.IsNil()
}

// In returns the error with the package that users called, and nil if there is none.
func In(pkg string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{pkg, e.Field, e.Value, e.Rule}
	}
	return fmt.Errorf("%s: %w: %w", pkg, ErrInvalid, err)
}

// Error names package, field, value and rule.
func (e *Error) Error() string {
	value := e.Value
	if value == "" {
		value = `""`
	}
	text := fmt.Sprintf("%s is %v: %s", e.Field, value, e.Rule)
	if e.Package != "" {
		text = e.Package + ": " + text
	}
	return text
}

// Is reports whether target is ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// Unless returns the error of a value that breaks a rule, and nil if it is ok.
func Unless(ok bool, field string, value any, rule string, args ...any) error {
	if ok {
		return nil
	}
	return New(field, value, rule, args...)
}
