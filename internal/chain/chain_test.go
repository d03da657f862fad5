package chain

import (
	"slices"
	"sync"
	"testing"
)

// TestTwo are called one after the other; a missing one is left out.
func TestTwo(t *testing.T) {
	var got []string
	hook := func(name string) func(int, bool) {
		return func(v int, u bool) {
			if v != 7 || !u {
				t.Errorf("%s got %d, %v", name, v, u)
			}
			got = append(got, name)
		}
	}
	for _, c := range []struct {
		f, g func(int, bool)
		want []string
	}{
		{hook("f"), hook("g"), []string{"f", "g"}},
		{hook("f"), nil, []string{"f"}},
		{nil, hook("g"), []string{"g"}},
	} {
		got = nil
		Two(c.f, c.g)(7, true)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	if Two[int, bool](nil, nil) != nil {
		t.Error("a hook of none")
	}
}

// TestQueueDeliversInOrder, also what a hook adds and unlocks itself, which comes after it has returned,
// and without the lock.
func TestQueueDeliversInOrder(t *testing.T) {
	var mu sync.Mutex
	var q Queue[int]
	var got []int
	inside := false
	var hook func(int)
	hook = func(v int) {
		if inside {
			t.Errorf("%d is delivered within another", v)
		}
		inside = true
		defer func() { inside = false }()
		got = append(got, v)
		if v < 10 {
			mu.Lock()
			q.Add(v * 10)
			q.Unlock(&mu, hook)
		}
	}
	for _, first := range []int{1, 3} {
		mu.Lock()
		q.Add(first)
		q.Add(first + 1)
		q.Unlock(&mu, hook)
	}
	mu.Lock()
	q.Unlock(&mu, hook) // there is nothing
	mu.Lock()
	q.Add(50)
	q.Unlock(&mu, hook)
	if want := []int{1, 2, 10, 20, 3, 4, 30, 40, 50}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if !mu.TryLock() {
		t.Error("still locked")
	}
}

// TestQueueGoesOnAfterAPanic of a hook: with the next call, and without the lock meanwhile.
func TestQueueGoesOnAfterAPanic(t *testing.T) {
	var mu sync.Mutex
	var q Queue[int]
	var got []int
	hook := func(v int) {
		if got = append(got, v); v == 1 {
			panic("of the hook")
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		mu.Lock()
		q.Add(1)
		q.Add(2)
		q.Unlock(&mu, hook)
	}()
	if !mu.TryLock() {
		t.Fatal("still locked")
	}
	q.Add(3)
	q.Unlock(&mu, hook)
	if want := []int{1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
