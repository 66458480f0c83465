package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/registration"
	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri/sim"
)

func TestWhatTheNodeIsToBe(t *testing.T) {
	r := newRig(t, sim.Options{}, "--node-ip=::", "--node-labels=a=b", "--register-with-taints=k=v:NoSchedule",
		"--cloud-provider=external", "--register-node=false", "--provider-id=p",
		"--feature-gates=ExtendWebSocketsToKubelet=false")
	w := desiredNode(r.node(), 10251)
	if w.Register || w.Name != "node" || w.Labels["a"] != "b" || len(w.Taints) != 1 || !w.ExternalCloud || !w.AnyIP ||
		len(w.NodeIPs) > 0 || w.ProviderID != "p" || !w.AttachDetach || w.MaxImages != 50 || w.KubeletPort != 10251 ||
		!slices.IsSorted(w.Features) || !slices.Contains(w.Features, "InPlacePodLevelResourcesVerticalScaling") ||
		slices.Contains(w.Features, "ExtendWebSocketsToKubelet") {
		t.Errorf("%+v", w)
	}
	if _, lacks := featuresOf(r.node()); !slices.Equal(lacks, []string{"ExtendWebSocketsToKubelet"}) {
		t.Errorf("it lacks %v", lacks)
	}
	if s := sizes(&config.Node{Kubelet: &config.KubeletConfiguration{MaxPods: 7, PodsPerCore: 3}}); s.MaxPods != 7 ||
		s.PodsPerCore != 3 || !s.LocalStorage {
		t.Errorf("%+v", s)
	}
	if got := runtimeOfNode(&runtime.State{})(); !got.Since.IsZero() || got.Ready || got.Features != nil {
		t.Errorf("before the runtime was heard: %+v", got)
	}
}

type saysOfCNI struct {
	info string
	err  error
}

func (s saysOfCNI) Status(_ context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	if s.err != nil || !verbose {
		return &runtimeapi.StatusResponse{}, s.err
	}
	return &runtimeapi.StatusResponse{Info: map[string]string{"config": s.info}}, nil
}

// Network problems are searched in the folders that the runtime reports, and in those of the flags only if it reports none.
func TestNetworkCheck_ReadsRuntimesFolders(t *testing.T) {
	flags, runtimes, bin := t.TempDir(), t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"10-a.conf": `{"cniVersion": "1.0.0", "name": "a", "type": "here"}`, "20-b.conf": `{"cniVersion": "1.0.0", "name": "b", "type": "gone"}`} {
		if err := os.WriteFile(filepath.Join(runtimes, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "here"),
		[]byte("#!/bin/sh\necho '{\"cniVersion\": \"1.0.0\", \"supportedVersions\": [\"1.0.0\"]}'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	node := &config.Node{CNIConfDir: flags, CNIBinDirs: []string{flags}}
	for _, c := range []struct {
		runtime saysOfCNI
		want    string // empty: nothing is wrong
	}{
		{saysOfCNI{info: `{"cni": {"binDirs": ["` + bin + `"], "confDir": "` + runtimes + `", "maxConfNum": 1}}`}, ""},
		{saysOfCNI{info: `{"cni": {"binDirs": ["` + bin + `"], "confDir": "` + runtimes + `", "maxConfNum": 0}}`}, "the network plugin gone of "},
		{saysOfCNI{info: `{"cni": {"binDir": "` + runtimes + `", "confDir": "` + runtimes + `"}}`}, "it is in none of " + runtimes},
		{saysOfCNI{info: `{"sandboxImage": "x"}`}, "no network configuration in " + flags},
		{saysOfCNI{}, "no network configuration in " + flags},
		{saysOfCNI{err: errors.New("away")}, registration.ErrNotKnown.Error()},
	} {
		err := networkProblem(node, c.runtime)(t.Context())
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.runtime, err, c.want)
		}
	}
}

// The kubelet warns once of cgroups of version 1, and of a resolver configuration that pods cannot have whole.
func TestWarningsOfNode(t *testing.T) {
	r := newRig(t, sim.Options{})
	node := r.node()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	text := "search" + strings.Repeat(" a", 33) + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	node.Kubelet.ResolverConfig = &file
	var got []string
	for _, e := range warningsOfNode(node, false) {
		got = append(got, e.Object.Kind+" "+e.Type+" "+e.Reason+": "+e.Message)
	}
	want := []string{"Node Warning CgroupV1: " + cgroupV1Message, "Node Warning CheckLimitsForResolvConf: Resolv.conf file '" + file +
		"' contains search line consisting of more than 32 domains!"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := warningsOfNode(node, true); len(got) != 0 {
		t.Errorf("of a node without faults: %v", got)
	}
}
