package volumes

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

// BenchmarkMount mounts and unmounts all volumes of a pod with none, one and twenty volumes. They alternate between disk,
// memory, ConfigMap and Secret. The ratios are to the pod without volumes, in the same run.
func BenchmarkMount(b *testing.B) {
	var none float64
	for _, n := range []int{0, 1, 20} {
		b.Run(fmt.Sprint("volumes=", n), func(b *testing.B) {
			d := newDisk(b)
			d.node.Objects = &objectset.Board{}
			d.node.Objects.Publish(volumestest.ObjectsOf("red"))
			var volumes []v1.Volume
			for i := range n {
				name := fmt.Sprint("v", i)
				volumes = append(volumes, []v1.Volume{
					volumestest.EmptyDirVolume(name), volumestest.MemoryVolume(name), volumestest.ConfigMapVolume(name, "settings"), volumestest.SecretVolume(name, "password"),
				}[i%4])
			}
			pod := volumestest.InNamespace(volumestest.PodWith("u", volumes...))
			for b.Loop() {
				if out := d.mountPod(b.Context(), "u", pod); len(out.failures()) > 0 {
					b.Fatal(out.failures())
				}
				if err := d.unmountPod(b.Context(), "u", true); err != nil {
					b.Fatal(err)
				}
			}
			each := float64(b.Elapsed()) / float64(b.N)
			if n == 0 {
				none = each
			} else if none > 0 {
				b.ReportMetric(each/none, "x-none")
			}
		})
	}
}
