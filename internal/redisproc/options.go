package redisproc

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNotFound says that there is no redis-server to run.
var ErrNotFound = errors.New("redis-server not found: install it, or name it in HOLDFAST_REDIS_SERVER")

// Find returns the path of redis-server: HOLDFAST_REDIS_SERVER if that is set,
// else what is on PATH.
func Find() (string, error) {
	path, err := exec.LookPath(cmp.Or(os.Getenv("HOLDFAST_REDIS_SERVER"), "redis-server"))
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNotFound, err)
	}
	return path, nil
}

// Options of a server.
type Options struct {
	// Config is further directives with their arguments, such as
	// {"maxmemory", "2mb"} or {"user", "app", "on", ">secret", "~*", "+@all"}.
	// A later one wins; those that may repeat, do.
	Config [][]string
	// TLS makes the server speak TLS only, with a certificate of its own.
	TLS bool

	sentinel []string // the configuration of a sentinel, line by line
}

// reserved directives are set by other means; a Server that did not know them
// would search for its process in the wrong place.
var reserved = []string{"port", "tls-port", "cluster-port", "dir", "daemonize", "logfile", "loglevel"}

func (o Options) validate() error {
	for _, c := range o.Config {
		if len(c) == 0 {
			return errors.New("redisproc: Config has an empty directive")
		}
		if name := strings.ToLower(c[0]); slices.Contains(reserved, name) {
			return fmt.Errorf("redisproc: Config must not set %q: the server depends on it", name)
		}
	}
	return nil
}

// cluster reports whether the node needs a port for its bus.
func (o Options) cluster() bool {
	return slices.ContainsFunc(o.Config, func(c []string) bool {
		return strings.EqualFold(c[0], "cluster-enabled") && len(c) > 1 && strings.EqualFold(c[1], "yes")
	})
}

var versionNumber = regexp.MustCompile(`\bv=(\d+)\.(\d+)`)

// AtLeast reports whether the server that [Find] finds has a version, or a later one. It is
// true where the server does not say its version.
func AtLeast(major, minor int) bool {
	path, err := Find()
	if err != nil {
		return true
	}
	out, err := exec.Command(path, "--version").Output()
	m := versionNumber.FindSubmatch(out)
	if err != nil || m == nil {
		return true
	}
	has, err1 := strconv.Atoi(string(m[1]))
	hasMinor, err2 := strconv.Atoi(string(m[2]))
	return err1 != nil || err2 != nil || has > major || has == major && hasMinor >= minor
}
