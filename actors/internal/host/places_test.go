package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
)

// One pod takes half of the places, others an eighth each, and a pod without a hook has its first at once, however many hang.
// Those that wait enter in their order when others leave, and leave no trace when they give up.
func TestPlacesAreSharedBetweenPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Places
		var refused int
		var leaves sync.Map
		ctx, giveUp := context.WithCancel(t.Context())
		ask := func(pod string, hooks int) {
			for i := range hooks {
				go func() {
					leave, err := p.Enter(ctx, pod)
					if errors.Is(err, context.Canceled) {
						p.mu.Lock()
						defer p.mu.Unlock()
						refused++
						return
					}
					leaves.Store(fmt.Sprint(pod, i), leave)
				}()
				synctest.Wait()
			}
		}
		ask("a", 130)
		for _, pod := range []string{"b", "c", "d", "e"} {
			ask(pod, 33)
		}
		ask("new", 2)
		want := map[string]int{"a": 128, "b": 32, "c": 32, "d": 32, "e": 32, "new": 1}
		if !maps.Equal(p.pods, want) {
			t.Fatalf("they have %v, want %v", p.pods, want)
		}
		for _, place := range []string{"a0", "a1", "b0"} { // of 257, so that two more may run
			leave, _ := leaves.Load(place)
			leave.(func())()
		}
		synctest.Wait()
		want["a"], want["b"], want["new"] = 126, 32, 2
		if !maps.Equal(p.pods, want) {
			t.Errorf("after three have left they have %v, want %v", p.pods, want)
		}
		giveUp()
		synctest.Wait()
		if len(p.waiting) > 0 || refused != 5 {
			t.Errorf("%d wait still, and %d gave up", len(p.waiting), refused)
		}
		leaves.Range(func(place, leave any) bool {
			if place != "a0" && place != "a1" && place != "b0" {
				leave.(func())()
			}
			return true
		})
		if p.taken != 0 || len(p.pods) != 0 {
			t.Errorf("in the end %d places are taken by %v", p.taken, p.pods)
		}
	})
}
