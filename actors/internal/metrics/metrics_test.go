package metrics

import (
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// Labels are the kubelet's, and have a bound.
func TestLabels(t *testing.T) {
	for _, reason := range []string{"OutOfcpu", "OutOfexample.com/gpu", "OutOfexample.com/other", "NodeAffinity"} {
		Refused(reason)
	}
	for _, size := range []uint64{0, 1, 10 << 20, 10<<20 + 1, 3 << 30, 1 << 40} {
		Pulled(size, time.Second)
	}
	Stored("kubernetes.io/secret", "volume_mount", time.Now(), nil)
	PulledFor("u1", time.Unix(5, 0), time.Unix(6, 0))
	PulledFor("u1", time.Unix(2, 0), time.Unix(7, 0)) // the second image of two was longer
	PulledFor("u1", time.Unix(3, 0), time.Unix(9, 0))
	if first, again := TakePull("u1"), TakePull("u1"); first != 7*time.Second || again != 0 {
		t.Errorf("pulled for %s, and %s", first, again)
	}
	for i := range 3 * maxPulls { // pods that never start
		PulledFor(types.UID(strconv.Itoa(i)), time.Time{}, time.Time{})
	}
	if n := len(pulls.of); n > maxPulls {
		t.Errorf("pulls of %d pods are kept", n)
	}
	Relisted(time.Unix(2, 0), time.Unix(5, 0), time.Unix(6, 0))
	all, err := Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			if n := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()); n != 0 {
				got[key] = n
			}
		}
	}
	want := map[string]float64{
		"kubelet_admission_rejections_total OutOfcpu": 1, "kubelet_admission_rejections_total OutOfExtendedResources": 2,
		"kubelet_admission_rejections_total NodeAffinity": 1,
		"kubelet_image_pull_duration_seconds N/A":         1, "kubelet_image_pull_duration_seconds 0-10MB": 2,
		"kubelet_image_pull_duration_seconds 10MB-100MB": 1, "kubelet_image_pull_duration_seconds 1GB-5GB": 1,
		"kubelet_image_pull_duration_seconds GT100GB":                                        1,
		"storage_operation_duration_seconds false volume_mount success kubernetes.io/secret": 1,
		"kubelet_pleg_relist_duration_seconds":                                               1, "kubelet_pleg_relist_interval_seconds": 1, "kubelet_pleg_last_seen_seconds": 5,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCountImageVolumes(t *testing.T) {
	CountImageVolumes(2, nil)
	CountImageVolumes(1, fmt.Errorf("no such path: %w", crierrors.ErrImageVolumeMountFailed))
	for want, c := range map[float64]*prometheus.CounterVec{3: imageVolumes, 2: imageVolumesThere, 1: imageVolumesFailed} {
		if got := testutil.ToFloat64(c); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
