package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	mirror  = "http://deb.debian.org/debian"
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

// wrapper runs a server by the loader and with the libraries of its own suite, which are
// next to it.
const wrapper = `#!/bin/sh
here=${0%%/*}
exec "$here/root/%s" --library-path "%s" "$here/root/%s" "$@"
`

// fetch returns the path of a server in the cache, and puts it there first where it is missing.
func fetch(ctx context.Context, cache string, s server, update bool) (string, error) {
	dir := filepath.Join(cache, s.name)
	path := filepath.Join(dir, "redis-server")
	if _, err := os.Stat(path); err == nil && !update {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for _, need := range []string{"apt-get", "dpkg"} {
		if _, err := exec.LookPath(need); err != nil {
			return "", fmt.Errorf("%s is needed, which is in Debian and its relatives", need)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return "", fmt.Errorf("Debian's signatures cannot be checked: install debian-archive-keyring: %w", err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, s.name+".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := unpack(ctx, work, s); err != nil {
		return "", err
	}
	if _, err := version(ctx, filepath.Join(work, "redis-server")); err != nil {
		return "", err
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return "", err
	}
	return path, errors.Join(os.RemoveAll(dir), os.Rename(work, dir))
}

// unpack downloads a package and all that it requires, and leaves the files in root and the
// wrapper. apt works in folders of its own, and knows of no package that is installed.
func unpack(ctx context.Context, work string, s server) error {
	apt := filepath.Join(work, "apt")
	for _, dir := range []string{"lists/partial", "cache/archives/partial", "preferences.d"} {
		if err := os.MkdirAll(filepath.Join(apt, dir), 0o755); err != nil {
			return err
		}
	}
	var sources strings.Builder
	for suite := range strings.SplitSeq(s.debian, ",") {
		fmt.Fprintf(&sources, "deb [signed-by=%s] %s %s main\n", keyring, mirror, suite)
	}
	for name, text := range map[string]string{"sources.list": sources.String(), "status": "", "preferences": ""} {
		if err := os.WriteFile(filepath.Join(apt, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	options := []string{
		"-qq", "-y", "-o", "Dir::Etc::SourceList=" + apt + "/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::Etc::Preferences=" + apt + "/preferences", "-o", "Dir::Etc::PreferencesParts=" + apt + "/preferences.d",
		"-o", "Dir::State=" + apt, "-o", "Dir::State::Lists=" + apt + "/lists", "-o", "Dir::State::status=" + apt + "/status",
		"-o", "Dir::Cache=" + apt + "/cache", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=",
		"-o", "Acquire::Languages=none", "-o", "Acquire::GzipIndexes=true", "-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=10", "-o", "APT::Update::Error-Mode=any",
	}
	if err := command(ctx, "apt-get", append(options, "update")...); err != nil {
		return err
	}
	if err := command(ctx, "apt-get", append(options, "install", "--download-only", "--no-install-recommends", s.pkg)...); err != nil {
		return err
	}
	root := filepath.Join(work, "root")
	debs, err := filepath.Glob(apt + "/cache/archives/*.deb")
	if err != nil || len(debs) == 0 {
		return fmt.Errorf("apt-get downloaded nothing for %s (%w)", s.pkg, err)
	}
	for _, deb := range debs {
		if err := command(ctx, "dpkg", "-x", deb, root); err != nil {
			return err
		}
	}
	if err := wrap(work, root, s.pkg); err != nil {
		return err
	}
	errs := []error{os.RemoveAll(apt)}
	for _, waste := range []string{"usr/share", "usr/sbin", "usr/include", "etc", "var"} {
		errs = append(errs, os.RemoveAll(filepath.Join(root, waste)))
	}
	return errors.Join(errs...)
}

// wrap writes the wrapper. The program keeps the name redis-server or valkey-server: it is
// one file with several names, and acts by the one that it is run by.
func wrap(work, root, pkg string) error {
	loader := first(root, "lib/*/ld-linux*.so.*", "usr/lib/*/ld-linux*.so.*")
	program, _, _ := strings.Cut(pkg, "/")
	program = first(root, "usr/bin/"+program)
	if loader == "" || program == "" {
		return fmt.Errorf("%s has no loader (%q) or no server (%q)", pkg, loader, program)
	}
	var libraries []string
	for _, pattern := range []string{"lib/*-linux-gnu*", "usr/lib/*-linux-gnu*"} {
		if dir := first(root, pattern); dir != "" {
			libraries = append(libraries, "$here/root/"+dir)
		}
	}
	text := fmt.Sprintf(wrapper, loader, strings.Join(libraries, ":"), program)
	return os.WriteFile(filepath.Join(work, "redis-server"), []byte(text), 0o755)
}

// first is the first file that matches a pattern, relative to root.
func first(root string, patterns ...string) string {
	for _, pattern := range patterns {
		if found, err := filepath.Glob(filepath.Join(root, pattern)); err == nil && len(found) > 0 {
			if name, err := filepath.Rel(root, found[0]); err == nil {
				return name
			}
		}
	}
	return ""
}

var versionText = regexp.MustCompile(`^(Redis|Valkey) server v=([0-9.]+)`)

// version runs a server for its name and version, such as Redis 7.0.15.
func version(ctx context.Context, path string) (string, error) {
	said, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	m := versionText.FindSubmatch(said)
	if err != nil || m == nil {
		return "", fmt.Errorf("%s does not run: %w: %s", path, err, said)
	}
	return string(m[1]) + " " + string(m[2]), nil
}

// command runs a program, and says what it said when it fails.
func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	said, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s failed: %w: %s", name, err, complaint(string(said)))
	}
	return nil
}

// complaint is the first line in which apt or dpkg complains, else the last one.
func complaint(text string) (line string) {
	for line = range strings.Lines(text) {
		if strings.HasPrefix(line, "W: ") || strings.HasPrefix(line, "E: ") {
			break
		}
	}
	return strings.TrimSpace(line)
}
