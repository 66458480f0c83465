package images_test

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
)

// The benchmark removes a thousand images on a node with a thousand pods that use others. It measures the actor and the
// simulated runtime, which removes an image at once.
func BenchmarkACollectionOfAThousandImages(b *testing.B) {
	const images = 1000
	for range b.N {
		b.StopTimer()
		s := collecting(b)
		for i := range images {
			s.pull(b, fmt.Sprintf("unused:%d", i))
			s.pull(b, fmt.Sprintf("used:%d", i))
			uid := fmt.Sprintf("pod-%d", i)
			s.k.Send(messages.PodAddress(uid), messages.PullImage{
				Key: messages.ImageKey{UID: uid, Container: "c"}, Image: fmt.Sprintf("used:%d", i), Policy: v1.PullIfNotPresent,
			})
		}
		s.k.RunWork()
		for range 2 { // the second survey finds them old enough
			s.k.Advance(5 * time.Minute)
			s.k.RunWork()
		}
		s.k.Take()
		b.StartTimer()
		s.k.Send(messages.Eviction, messages.ReclaimImages{})
		s.k.RunWork()
		b.StopTimer()
		removed := 0
		for _, m := range s.k.Take() {
			if r, ok := m.Msg.(messages.ImagesReclaimed); ok {
				removed += r.Removed
			}
		}
		if removed != images {
			b.Fatalf("%d images were removed", removed)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/images, "µs/image")
}
