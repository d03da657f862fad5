package main

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	pkgs    = flag.String("pkg", "", "change these packages, separated by commas, one place at a time: ./retry,./internal/algo")
	sample  = flag.Int("sample", 0, "try so many places of each package; 0 is all of them")
	seed    = flag.Uint64("seed", 1, "chooses the sample")
	servers = flag.Bool("servers", false, "also run the tests that need servers and time, which -short leaves out")
	fresh   = flag.Bool("fresh", false, "forget what earlier runs found")
	atOnce  = flag.Int("p", 2, "how many run at a time")
)

// least is the part of the changes, of those that are not listed with a reason, that the
// tests of a package have to find.
const least = 0.9

// generic changes packages in many small ways, and shows what their tests do not notice.
// All changes of a package are compiled into one test binary, and a variable of the
// environment says which of them is made.
func generic() error {
	known, err := readSurvivors(filepath.Join(*root, "scripts/mutants/survivors.txt"))
	if err != nil {
		return err
	}
	var errs []error
	fmt.Println("| package | changes | found | listed | not found |\n|---|---|---|---|---|")
	for dir := range strings.SplitSeq(*pkgs, ",") {
		if err := try(strings.TrimSuffix(strings.TrimPrefix(dir, "./"), "/"), known); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// users are packages whose tests are those of a package, too.
var users = map[string][]string{
	"internal/lua":       {"semaphore"},
	"internal/admission": {"httpclient"},
	"internal/algo":      {"fallback"},
	"internal/discovery": {"httpclient"},
	"internal/inbound":   {"middleware"},
	"internal/lease":     {"limiter"},
	"internal/operator":  {"cmd/holdfast", "admin"},
	"internal/outbox":    {"limiter"},
	"internal/redislink": {"limiter", "semaphore"},
	"internal/wait":      {"internal/admission"},
}

// try tries the changes of one package.
func try(dir string, known map[string]string) error {
	p, err := load(*root, dir)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	overlay, err := p.overlay(filepath.Join(p.root, dir), tmp)
	if err != nil {
		return err
	}
	var binaries []*binary
	reached := map[int]bool{}
	for i, test := range append([]string{dir}, users[dir]...) {
		b := &binary{dir: filepath.Join(p.root, test), path: filepath.Join(tmp, fmt.Sprint("test", i))}
		if err := b.build(overlay); err != nil {
			return err
		}
		if _, err := os.Stat(b.path); err != nil {
			continue // it has no tests
		}
		if err := b.measure(len(p.changes)); err != nil {
			return err
		}
		for n := range b.reach {
			reached[n] = true
		}
		binaries = append(binaries, b)
	}
	cache, err := openCache(p)
	if err != nil {
		return err
	}
	chosen := p.changes
	if *sample > 0 && *sample < len(chosen) {
		chosen = slices.Clone(chosen)
		rng := rand.New(rand.NewPCG(*seed, 0))
		rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:*sample]
	}
	var done atomic.Int64
	work := make(chan *change)
	var wg sync.WaitGroup
	for range *atOnce {
		wg.Go(func() {
			for c := range work {
				if !cache.found(c) {
					c.found = slices.ContainsFunc(binaries, func(b *binary) bool { return b.finds(c) })
					cache.keep(c)
				} else {
					c.found = true
				}
				if n := done.Add(1); n%50 == 0 {
					fmt.Fprintf(os.Stderr, "%s: %d of %d\n", dir, n, len(chosen))
				}
			}
		})
	}
	for _, c := range chosen {
		work <- c
	}
	close(work)
	wg.Wait()
	if err := cache.close(); err != nil {
		return err
	}

	made := map[string]bool{}
	for _, c := range p.changes {
		made[c.id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		if name, _, _ := strings.Cut(id, " "); (path.Dir(name) == dir || path.Dir(name) == dir+"/scripts") && !made[id] {
			fmt.Fprintln(os.Stderr, "is listed, and is no change of the package any more:", id)
		}
	}
	found, listed := 0, 0
	var missed []string
	for _, c := range chosen {
		switch _, isListed := known[c.id]; {
		case c.found && isListed:
			fmt.Fprintln(os.Stderr, "is listed as not found, and is found:", c.id)
			fallthrough
		case c.found:
			found++
		case isListed:
			listed++
		case !reached[c.n]:
			missed = append(missed, fmt.Sprintf("%s (line %d, never reached)", c.id, c.line))
		default:
			missed = append(missed, fmt.Sprintf("%s (line %d)", c.id, c.line))
		}
	}
	fmt.Printf("| %s | %d | %d | %d | %d |\n", dir, len(chosen), found, listed, len(missed))
	for _, m := range missed {
		fmt.Fprintln(os.Stderr, m)
	}
	goal := least
	if len(chosen) < len(p.changes) {
		goal -= 0.15 // of a few, chance has its part
	}
	if counted := len(chosen) - listed; float64(found) < goal*float64(counted) {
		return fmt.Errorf("%d of %d changes are found, which is less than %.0f %%", found, counted, 100*goal)
	}
	return nil
}

// binary is the test binary with all changes.
type binary struct {
	dir, path string
	flags     []string
	took      map[string]time.Duration // by test
	reach     map[int][]string         // the tests that reach a change, the shortest first
}

func (b *binary) build(overlay string) error {
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", b.path, ".")
	cmd.Dir = b.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// overlay writes the texts, what chooses between them, and what the go command needs to read
// them in place of the package's files.
func (p *source) overlay(dir, tmp string) (string, error) {
	replace := map[string]string{}
	texts := maps.Clone(p.texts)
	texts[filepath.Join(dir, "zz_mutants.go")] = strings.ReplaceAll(chooser, "PACKAGE", p.name)
	if text := p.scriptChooser(); text != "" {
		texts[filepath.Join(dir, "zz_mutants_scripts.go")] = text
	}
	for path, text := range texts {
		name := filepath.Join(tmp, fmt.Sprint(len(replace), filepath.Base(path)))
		replace[path] = name
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(tmp, "overlay.json")
	return file, os.WriteFile(file, overlay, 0o600)
}

// chooser is compiled into the package. It notes in a file which changes are reached, or
// makes one of them.
const chooser = `package PACKAGE

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

var (
	mutantsChosen, _ = strconv.Atoi(os.Getenv("HOLDFAST_MUTANT"))
	mutantsNotes     = os.Getenv("HOLDFAST_MUTANT_NOTES")
	mutantsNoted     sync.Map
)

func mutated(n int) bool {
	if mutantsNotes != "" {
		if _, noted := mutantsNoted.LoadOrStore(n, true); !noted {
			f, err := os.OpenFile(mutantsNotes, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			fmt.Fprintln(f, n)
			f.Close()
		}
	}
	return n == mutantsChosen
}
`

// command runs tests of the binary.
func (b *binary) command(tests []string, limit time.Duration, env ...string) *exec.Cmd {
	// A change that ends the process by os.Exit(0) is found, as go test finds it.
	cmd := exec.Command(b.path, "-test.paniconexit0", "-test.run", "^("+strings.Join(tests, "|")+")$", "-test.failfast", "-test.timeout", limit.String())
	cmd.Args = append(cmd.Args, b.flags...)
	if !*servers {
		cmd.Args = append(cmd.Args, "-test.short")
	}
	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), env...)
	return cmd
}

// measure runs each test alone, which says how long it takes and what it reaches. Tests
// that count allocations are left out: what chooses a change allocates. So are those that fail
// without a change, which would find every one.
func (b *binary) measure(changes int) error {
	// What properties fail on is not kept: it is that of a change.
	if usage, _ := exec.Command(b.path, "-help").CombinedOutput(); strings.Contains(string(usage), "rapid.nofailfile") {
		b.flags = []string{"-rapid.nofailfile"}
	}
	list := exec.Command(b.path, "-test.list", "^(Test|Example|Fuzz)")
	list.Dir = b.dir
	out, err := list.Output()
	if err != nil {
		return err
	}
	b.took, b.reach = map[string]time.Duration{}, map[int][]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	turn := make(chan struct{}, *atOnce)
	for i, test := range strings.Fields(string(out)) {
		if strings.Contains(test, "Alloc") || strings.HasPrefix(test, "Benchmark") {
			continue
		}
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			notes := b.path + fmt.Sprint(".notes", i)
			began := time.Now()
			said, err := b.command([]string{test}, 5*time.Minute, "HOLDFAST_MUTANT_NOTES="+notes).CombinedOutput()
			took := time.Since(began)
			text, _ := os.ReadFile(notes)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s is left out, as it fails without a change: %v\n%s\n", test, err, tail(said))
				return
			}
			b.took[test] = took
			for line := range strings.Lines(string(text)) {
				var n int
				if _, err := fmt.Sscan(line, &n); err == nil && n > 0 && n <= changes {
					b.reach[n] = append(b.reach[n], test)
				}
			}
		})
	}
	wg.Wait()
	for _, tests := range b.reach {
		slices.SortFunc(tests, func(x, y string) int { return cmp.Compare(b.took[x], b.took[y]) })
	}
	return nil
}

// tail is the end of what a test said.
func tail(said []byte) []byte { return said[max(0, len(said)-1000):] }

// finds reports whether a test fails, or does not end, with a change. The shortest tests run
// first, in rounds: those of a round are one process, which runs them in the order of the source,
// so that a change that a short test finds does not wait for the long ones, nor one that hangs
// for as long as all of them may take.
func (b *binary) finds(c *change) bool {
	for round, limit := range b.rounds(c.n) {
		if b.command(round, limit, fmt.Sprint("HOLDFAST_MUTANT=", c.n)).Run() != nil {
			return true
		}
	}
	return false
}

// rounds are the tests that reach a change, with how long those of each may take together: each
// round takes about as long as all before it, and the first one a second.
func (b *binary) rounds(n int) iter.Seq2[[]string, time.Duration] {
	return func(yield func([]string, time.Duration) bool) {
		tests, before := b.reach[n], time.Second
		for len(tests) > 0 {
			k, sum := 0, time.Duration(0)
			for k < len(tests) && (k == 0 || sum+b.took[tests[k]] <= before) {
				sum += b.took[tests[k]]
				k++
			}
			if !yield(tests[:k], 10*time.Second+4*sum) {
				return
			}
			tests, before = tests[k:], before+sum
		}
	}
}

// cache has what was found before, one line each, as long as the package's code is the same:
// what is not found is tried again. So a run that was stopped goes on where it was.
type cache struct {
	mu   sync.Mutex
	f    *os.File
	seen map[string]bool
}

// cacheDir is where what was found is remembered.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "holdfast-mutants")
	return dir, os.MkdirAll(dir, 0o700)
}

func openCache(p *source) (*cache, error) {
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(p.texts)) {
		_, _ = io.WriteString(h, p.texts[path])
	}
	_, _ = io.WriteString(h, p.scriptChooser())
	name := filepath.Join(dir, fmt.Sprintf("%x", h.Sum(nil)[:16]))
	if *servers {
		name += "-servers" // what these tests find is not what the others do
	}
	if *fresh {
		_ = os.Remove(name)
	}
	c := &cache{seen: map[string]bool{}}
	c.f, err = os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for in := bufio.NewScanner(c.f); in.Scan(); {
		c.seen[in.Text()] = true
	}
	return c, nil
}

func (c *cache) found(ch *change) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[ch.id]
}

func (c *cache) keep(ch *change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch.found {
		fmt.Fprintln(c.f, ch.id)
	}
}

func (c *cache) close() error { return c.f.Close() }

// readSurvivors reads the changes that no test can find, with the reasons: lines of what
// the tool prints, " -- " and the reason. Lines that begin with # are comments.
func readSurvivors(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	known := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, ok := strings.Cut(line, " -- ")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s: %q has no reason", path, line)
		}
		known[strings.TrimSpace(id)] = reason
	}
	return known, nil
}
