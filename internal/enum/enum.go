// Package enum prints and reads the values of enumerations by their names.
package enum

import (
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/configerr"
)

// Name returns the name of v, or which unknown value of what it is.
func Name[T ~uint8](names []string, v T, what string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return "unknown " + what + " " + strconv.Itoa(int(v))
}

// Parse sets v to the value of a name, and leaves it when there is no such name.
func Parse[T ~uint8](names []string, v *T, what, name string) error {
	i := slices.Index(names, name)
	if i < 0 {
		return configerr.New(what, strconv.Quote(name), "must be one of %s", strings.Join(names, ", "))
	}
	*v = T(i)
	return nil
}
