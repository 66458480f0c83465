package main

import (
	"testing"

	semver "k8s.io/apimachinery/pkg/util/version"

	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri/sim"
)

// What stands for the kubelet's version is read by others as a semantic version, whatever ours is.
func TestTheVersionOfTheNode(t *testing.T) {
	for own, want := range map[string]string{
		"v0.4.0": "v1.36.3+playlet-v0.4.0", "devel-1d48ce8-dirty": "v1.36.3+playlet-devel-1d48ce8-dirty", "v0.4.1-0.2026+dirty": "v1.36.3+playlet-v0.4.1-0.2026-dirty",
		"a b..c.": "v1.36.3+playlet-a-b.c",
	} {
		got := kubeletVersion(own)
		if v, err := semver.ParseSemantic(got); got != want || err != nil || v.Minor() != 36 {
			t.Errorf("%q: %q, want %q, %v", own, got, want, err)
		}
	}
}

func TestWhatTheNodeIsToBe(t *testing.T) {
	r := newRig(t, sim.Options{}, "--node-ip=::", "--node-labels=a=b", "--register-with-taints=k=v:NoSchedule", "--cloud-provider=external", "--register-node=false", "--provider-id=p")
	w := nodeWish(r.node())
	if w.Register || w.Name != "node" || w.Labels["a"] != "b" || len(w.Taints) != 1 || !w.ExternalCloud || !w.AnyIP || len(w.NodeIPs) > 0 || w.ProviderID != "p" || !w.AttachDetach || w.MaxImages != 50 || w.KubeletPort != 0 {
		t.Errorf("%+v", w)
	}
	if s := sizes(&config.Node{Kubelet: &config.KubeletConfiguration{MaxPods: 7, PodsPerCore: 3}}); s.MaxPods != 7 || s.PodsPerCore != 3 || !s.LocalStorage {
		t.Errorf("%+v", s)
	}
	if got := runtimeOfNode(&runtime.State{})(); !got.Since.IsZero() || got.Ready || got.Features != nil {
		t.Errorf("before the runtime was heard: %+v", got)
	}
}
