package config

import (
	"maps"
	"strings"
	"testing"
)

// A pause of none would be a look without end.
func TestNodeStatusFrequency_RejectsZero(t *testing.T) {
	if _, _, err := loadArgs(t, "--node-status-update-frequency=0s"); err == nil {
		t.Error("it is taken")
	}
}

func TestCPUsThatAreReservedOneByOne(t *testing.T) {
	for name, c := range map[string]struct {
		args         []string
		system, kube map[string]string
		warned       bool
	}{
		"none": {[]string{"--system-reserved=cpu=100m", "--kube-reserved=cpu=200m"}, map[string]string{"cpu": "100m"},
			map[string]string{"cpu": "200m"}, false},
		"alone": {[]string{"--reserved-cpus=0-1,3"}, map[string]string{"cpu": "3"}, nil, false},
		"with others": {[]string{"--reserved-cpus=0", "--system-reserved=memory=1Gi", "--kube-reserved=pid=9"},
			map[string]string{"cpu": "1", "memory": "1Gi"}, map[string]string{"pid": "9"}, false},
		"in place of": {[]string{"--reserved-cpus=0-1", "--system-reserved=cpu=100m,memory=1Gi", "--kube-reserved=cpu=5"},
			map[string]string{"cpu": "2", "memory": "1Gi"}, nil, true},
	} {
		n, warnings, err := loadArgs(t, c.args...)
		if err != nil {
			t.Fatal(name, err)
		}
		if k := n.Kubelet; !maps.Equal(k.SystemReserved, c.system) || !maps.Equal(k.KubeReserved, c.kube) {
			t.Errorf("%s: system %v, kube %v", name, k.SystemReserved, k.KubeReserved)
		}
		warned := false
		for _, w := range warnings {
			warned = warned || strings.Contains(w.Message, "takes the place")
		}
		if warned != c.warned {
			t.Errorf("%s: %v", name, warnings)
		}
	}
	if _, _, err := loadArgs(t, "--reserved-cpus=0", "--kube-reserved=cpu=x"); err == nil {
		t.Error("a quantity that is none is passed over where it is replaced")
	}
}
