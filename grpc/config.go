package holdfastgrpc

import (
	"reflect"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

func configError(field string, value any, format string, args ...any) error {
	return (*ConfigError)(configerr.New(field, value, format, args...))
}

// isNil also knows a nil pointer in an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}
