package apiserver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func agedPod(name string, age int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(age), 0)),
		},
		Spec: v1.PodSpec{NodeName: "n"},
	}
}

// After any changes, the lists have all present pods once, the oldest first.
func TestTheOrderOfPods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, there := newTable("n"), map[string]*v1.Pod{}
		draw := func() *v1.Pod {
			return agedPod(fmt.Sprint("p", rapid.IntRange(0, 5).Draw(t, "name")), rapid.IntRange(1, 3).Draw(t, "age"))
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			p := draw()
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				there[p.Name] = p
				b.put(p, time.Unix(9, 0))
			case 2:
				delete(there, p.Name)
				b.remove(p)
			default:
				there = map[string]*v1.Pod{}
				var all []*v1.Pod
				for range rapid.IntRange(0, 4).Draw(t, "listed") {
					if p := draw(); there[p.Name] == nil {
						there[p.Name], all = p, append(all, p)
					}
				}
				b.replace(all, time.Unix(9, 0))
			}
			served, wanted, _ := b.lists()
			if len(served) != len(there) || len(wanted) != len(there) {
				t.Fatalf("served %d, wanted %d of %d", len(served), len(wanted), len(there))
			}
			if !slices.IsSortedFunc(b.order, (*entry).compare) {
				t.Fatal("they are in no order")
			}
			for _, p := range served {
				if there[p.Name] != p {
					t.Fatalf("%s is not the one that is there", p.Name)
				}
			}
		}
	})
}

// BenchmarkOneOfManyChanges measures the change of one pod among many.
func BenchmarkOneOfManyChanges(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint("pods=", n), func(b *testing.B) {
			machine := newTable("n")
			for i := range n {
				machine.put(agedPod(fmt.Sprint("web-", i), i%50), time.Unix(1, 0))
			}
			for b.Loop() {
				machine.put(agedPod("web-0", 0), time.Unix(1, 0))
				machine.lists()
			}
		})
	}
}
