package agent

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/actors/resources/resourcestest"
	"github.com/playlet-dev/playlet/config"
)

func TestProcessesArePutIntoTheConfiguredCgroups(t *testing.T) {
	groups := resourcestest.New()
	node := &config.Node{Kubelet: &kubeletconfig.KubeletConfiguration{}}
	own := os.Getpid()
	groups.Put("/", 7, own, 9)
	if err := place(node, groups); err != nil || !slices.Equal(groups.Processes("/"), []int{7, own, 9}) {
		t.Errorf("without configuration, %v are left in no cgroup: %v", groups.Processes("/"), err)
	}
	node.Kubelet.KubeletCgroups, node.Kubelet.SystemCgroups = "/kubelet.slice", "/system"
	if err := place(node, groups); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string][]int{"/": {}, "/kubelet.slice": {own}, "/system": {7, 9}} {
		if got := groups.Processes(at); !slices.Equal(got, want) {
			t.Errorf("%s has the processes %v, not %v", at, got, want)
		}
	}
	// One that is where it is to be may be in the root of another hierarchy, in which nothing is moved.
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	node.Kubelet.KubeletCgroups = strings.SplitN(line, ":", 3)[2]
	groups.Put("/", 11, own)
	if err := place(node, groups); err != nil || slices.Contains(groups.Processes("/system"), own) {
		t.Errorf("the agent is taken for a part of the system, of %v: %v", groups.Processes("/system"), err)
	}
	broken := errors.New("broken")
	groups.Fail(broken)
	if err := place(node, groups); !errors.Is(err, broken) {
		t.Errorf("what cannot be done is told as %v", err)
	}
}
