package overdue

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAWriteThatEnds(t *testing.T) {
	broken := errors.New("broken")
	for _, want := range []error{nil, broken} {
		var wrote []int
		w := NewWriter("it", time.Hour, func(v int) error {
			wrote = append(wrote, v)
			return want
		})
		if v, set := w.Newest(); set {
			t.Errorf("before anything was set it is %d", v)
		}
		if err := w.Flush(); err != nil || len(wrote) > 0 {
			t.Errorf("before anything was set it wrote %v: %v", wrote, err)
		}
		w.Set(7)
		w.Set(8)
		for range 2 {
			if err := w.Flush(); !errors.Is(err, want) {
				t.Error(err)
			}
		}
		if v, set := w.Newest(); !slices.Equal(wrote, []int{8, 8}) || v != 8 || !set {
			t.Errorf("wrote %v, newest is %d", wrote, v)
		}
	}
	w := NewWriter("it", time.Hour, func(int) error { panic("a bug") })
	w.Set(1)
	if err := w.Flush(); err == nil || !strings.Contains(err.Error(), "it: panic: a bug") {
		t.Error(err)
	}
}

// A hanging write is the only one, and its error text stays the same. After its end, the newest value is written once for all
// callers.
func TestAWriteThatHangs(t *testing.T) {
	begun, back := make(chan int, 9), make(chan struct{})
	w := NewWriter("the disk", time.Millisecond, func(v int) error {
		begun <- v
		<-back
		if v == 1 {
			return errors.New("the first one's error, which is nobody else's")
		}
		return nil
	})
	w.Set(1)
	first := w.Flush()
	w.Set(2)
	second := w.Flush()
	w.Set(3)
	third := w.Flush()
	for _, err := range []error{first, second, third} {
		if err == nil || err.Error() != first.Error() || !strings.Contains(err.Error(), "the disk: it is being written since ") {
			t.Errorf("%v, then %v", first, err)
		}
	}
	if n := len(begun); n > 1 { // it may yet have to begin
		t.Errorf("%d writes are under way", n)
	}
	w.timeout = time.Hour
	joined := make(chan error)
	for range 2 {
		go func() { joined <- w.Flush() }()
	}
	close(back)
	for range 2 {
		if err := <-joined; err != nil {
			t.Error(err)
		}
	}
	close(begun)
	var wrote []int
	for v := range begun {
		wrote = append(wrote, v)
	}
	if len(wrote) < 2 || wrote[0] != 1 || slices.Contains(wrote, 2) || wrote[1] != 3 {
		t.Errorf("wrote %v", wrote)
	}
}
