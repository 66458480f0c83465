package cgroups_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	library "github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/linux/cgroups"
)

// TestMemoryQoS_WritesCgroupV2Files checks the values that memory QoS (KEP-2570) writes for the node, the classes and the
// pods. The files are at their paths on a v2 node, in a process with its own mounts. As in kubelet 1.36,
// memoryReservationPolicy None resets the values of the classes.
func TestMemoryQoS_WritesCgroupV2Files(t *testing.T) {
	withOwnMounts(t, keptInFiles)
}

func keptInFiles(t *testing.T) {
	const mounted, mi = "/sys/fs/cgroup", 1 << 20
	must(t, "mount", syscall.Mount("cgroup2", mounted, "cgroup2", 0, ""))
	if !library.IsCgroup2UnifiedMode() { // the library caches this
		t.Fatal("the library does not take it for cgroup v2")
	}
	must(t, "cover", syscall.Mount("tmpfs", mounted, "tmpfs", 0, ""))
	library.TestMode = true
	pod := func(uid, request, limit string) *v1.Pod {
		list := func(memory string) v1.ResourceList {
			if memory == "" {
				return nil
			}
			return v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory), v1.ResourceCPU: resource.MustParse("1")}
		}
		p := &v1.Pod{}
		p.UID = types.UID(uid)
		p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list(request), Limits: list(limit)}}}
		return p
	}
	pods := []*v1.Pod{pod("sure", "4Mi", "4Mi"), pod("some", "2Mi", "8Mi"), pod("more", "1Mi", ""), pod("none", "", "")}
	groups := []string{"", "kubepods", "kubepods/burstable", "kubepods/besteffort", "kubepods/podsure", "kubepods/burstable/podsome",
		"kubepods/burstable/podmore", "kubepods/besteffort/podnone"}
	for _, group := range groups { // the kernel creates this file with the folder
		must(t, group, os.MkdirAll(filepath.Join(mounted, group), 0o755))
		must(t, group, os.WriteFile(filepath.Join(mounted, group, "cgroup.controllers"), []byte("cpu memory pids"), 0o600))
	}
	for _, c := range []struct {
		name string
		s    cgroups.Settings
		want map[string]string // of each group: memory.min, memory.low, memory.max
	}{
		{"off", cgroups.Settings{ProtectMemory: true}, map[string]string{
			"kubepods": "- - 1024Mi", "kubepods/burstable": "- - -", "kubepods/besteffort": "- - -", "kubepods/podsure": "- - 4Mi",
			"kubepods/burstable/podsome": "- - 8Mi", "kubepods/burstable/podmore": "- - max", "kubepods/besteffort/podnone": "- - max"}},
		{"TieredReservation", cgroups.Settings{MemoryQoS: true, ProtectMemory: true}, map[string]string{
			"kubepods": "7Mi - 1024Mi", "kubepods/burstable": "- 3Mi -", "kubepods/besteffort": "- - -",
			"kubepods/podsure": "4Mi - 4Mi", "kubepods/burstable/podsome": "- 2Mi 8Mi", "kubepods/burstable/podmore": "- 1Mi max",
			"kubepods/besteffort/podnone": "- - max"}},
		{"None after that", cgroups.Settings{MemoryQoS: true}, map[string]string{
			"kubepods": "0 - 1024Mi", "kubepods/burstable": "- 0 -", "kubepods/besteffort": "- - -",
			// The values of pods remain, but without protection of the parent group they have no effect.
			"kubepods/podsure": "4Mi - 4Mi", "kubepods/burstable/podsome": "- 2Mi 8Mi", "kubepods/burstable/podmore": "- 1Mi max",
			"kubepods/besteffort/podnone": "- - max"}},
	} {
		tree := cgroups.Tree{Groups: cgroups.Host{}, Settings: c.s, Systemd: func() bool { return false },
			Capacity: func() (cgroups.Capacity, error) { return cgroups.Capacity{MilliCPU: 2000, Memory: 1024 * mi}, nil }}
		must(t, c.name, tree.ApplyNode(pods))
		for _, p := range pods {
			_, err := tree.EnsurePod(p)
			must(t, c.name, err)
		}
		for group, want := range c.want {
			var got []string
			for _, file := range []string{"memory.min", "memory.low", "memory.max"} {
				text, err := os.ReadFile(filepath.Join(mounted, group, file))
				if err != nil {
					got = append(got, "-")
					continue
				}
				if bytes, err := strconv.Atoi(string(text)); err == nil && bytes > 0 {
					text = fmt.Appendf(nil, "%dMi", bytes/mi)
				}
				got = append(got, string(text))
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("%s, %s: memory.min, memory.low and memory.max are %s, want %s", c.name, group, text, want)
			}
		}
	}
}
