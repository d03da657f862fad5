package holdfastgrpc

import (
	"fmt"
	"reflect"

	"github.com/holdfast-go/holdfast/limiter"
)

func configError(field string, value any, format string, args ...any) error {
	return &limiter.ConfigError{Field: field, Value: value, Rule: fmt.Sprintf(format, args...)}
}

// isNil also knows a nil pointer in an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}
