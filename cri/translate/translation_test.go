package translate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/cri"
)

// The recorded requests in testdata/translation were made by the kubelet 1.36.3 (kuberuntime's generatePodSandboxConfig and
// generateContainerConfig) from the pods beside them, on a node with these facts. The pods are defaulted as far as it matters.
// Without the defaulted securityContext: {} a kubelet would omit the sandbox's namespaces, which this package never does.
const (
	recordedAttempt  = 3
	recordedRestarts = 2
	recordedImage    = "sha256:resolved"
)

func recordedNodes() map[string]NodeFacts {
	base := NodeFacts{
		PodLogsDir:         "/var/log/pods",
		ClusterDomain:      "cluster.local",
		CPUCFSQuota:        true,
		CPUCFSQuotaPeriod:  100 * time.Millisecond,
		SeccompProfileRoot: "/var/lib/kubelet/seccomp",
		MemoryCapacity:     8 << 30,
		SwapCapacity:       2 << 30,
		HugePageSizes:      []string{"2MB", "1GB"},
	}
	old, unified := base, base
	old.SingleProcessOOMKill = true
	unified.CgroupV2 = true
	unified.SwapController = true
	unified.LimitedSwap = true
	unified.SeccompDefault = true
	unified.CPUCFSQuotaPeriod = 10 * time.Millisecond
	return map[string]NodeFacts{"cgroupv1": old, "cgroupv2": unified}
}

func loadPod(t *testing.T, path string) *v1.Pod {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict(text, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestTranslationIsTheKubelets(t *testing.T) {
	pods, err := filepath.Glob("testdata/translation/*.yaml")
	if err != nil || len(pods) == 0 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	for _, path := range pods {
		for variant, node := range recordedNodes() {
			stem := strings.TrimSuffix(path, ".yaml") + "." + variant
			t.Run(filepath.Base(stem), func(t *testing.T) {
				compareWithRecording(t, loadPod(t, path), node, stem+".json")
			})
		}
	}
}

func compareWithRecording(t *testing.T, pod *v1.Pod, node NodeFacts, golden string) {
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var recorded map[string]json.RawMessage
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	before := pod.DeepCopy()
	dns, warnings := NewDNSConfig(pod, DNSFacts{
		ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: node.ClusterDomain,
		Host: ResolvConf{
			Servers: []string{"192.0.2.53"}, Searches: []string{"example.org", "lab.example.org"},
			Options: []string{"ndots:2"},
		},
	})
	if len(warnings) > 0 {
		t.Errorf("DNS: %v", warnings)
	}
	sandbox, err := NewSandboxConfig(pod, node, SandboxParams{
		Attempt: recordedAttempt, CgroupParent: "/kubepods/pod" + string(pod.UID), DNS: dns,
	})
	if err != nil {
		t.Fatal(err)
	}
	expectMessage(t, "sandbox", sandbox, &runtimeapi.PodSandboxConfig{}, recorded["sandbox"])
	count := 1
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			count++
			compareContainer(t, pod, &list[i], node, recorded[list[i].Name])
		}
	}
	if count != len(recorded) {
		t.Errorf("%d requests, %d are recorded", count, len(recorded))
	}
	if !reflect.DeepEqual(pod, before) {
		t.Error("the pod was changed")
	}
}

func compareContainer(
	t *testing.T, pod *v1.Pod, container *v1.Container, node NodeFacts, recorded []byte,
) {
	env, err := ResolveEnv(pod, container, EnvSources{})
	if err != nil {
		t.Fatal(err)
	}
	root := int64(0)
	mount := &runtimeapi.Mount{
		HostPath: "/host/" + container.Name, ContainerPath: "/data", Readonly: true,
		Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
	}
	config, err := NewContainerConfig(pod, container, node, ContainerParams{
		RestartCount: recordedRestarts, ImageRef: recordedImage, ImageUID: &root, Env: env,
		Mounts:      []*runtimeapi.Mount{mount},
		Annotations: map[string]string{"device.example.org/id": "7", cri.AnnotationHash: "forged"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if Changed(container, config.Annotations) {
		t.Errorf("%s counts as changed right after its creation", container.Name)
	}
	// The kubelet does not write these.
	delete(config.Annotations, cri.AnnotationSpecHash)
	if Changed(container, config.Annotations) {
		t.Errorf("%s counts as changed when taken over from a kubelet", container.Name)
	}
	expectMessage(t, container.Name, config, &runtimeapi.ContainerConfig{}, recorded)
}

func expectMessage(t *testing.T, name string, got, want proto.Message, recorded []byte) {
	t.Helper()
	if err := protojson.Unmarshal(recorded, want); err != nil {
		t.Fatalf("%s: the recording: %v", name, err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("%s differs\ngot:  %s\nwant: %s", name, protojson.Format(got), protojson.Format(want))
	}
}

func TestHostNetworkLeavesTheHostnameEmpty(t *testing.T) {
	pod := loadPod(t, "testdata/translation/host-namespaces.yaml")
	node := recordedNodes()["cgroupv1"]
	for _, host := range []bool{true, false} {
		pod.Spec.HostNetwork = host
		pod.Spec.Hostname = "chosen"
		config, err := NewSandboxConfig(pod, node, SandboxParams{})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{true: "", false: "chosen"}[host]; config.Hostname != want {
			t.Errorf("host network %t: hostname %q", host, config.Hostname)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	policy, proc := v1.SupplementalGroupsPolicy("Odd"), v1.Signal("RUNTIME_DEFAULT")
	localhost := v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost}
	armor := v1.AppArmorProfile{Type: "Odd"}
	for name, spoil := range map[string]func(*v1.Pod, *NodeFacts){
		"period":   func(_ *v1.Pod, n *NodeFacts) { n.CPUCFSQuotaPeriod = 0 },
		"policy":   func(p *v1.Pod, _ *NodeFacts) { p.Spec.SecurityContext.SupplementalGroupsPolicy = &policy },
		"seccomp":  func(p *v1.Pod, _ *NodeFacts) { p.Spec.SecurityContext.SeccompProfile = &localhost },
		"apparmor": func(p *v1.Pod, _ *NodeFacts) { p.Spec.SecurityContext.AppArmorProfile = &armor },
		"signal":   func(p *v1.Pod, _ *NodeFacts) { p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: &proc} },
	} {
		pod := loadPod(t, "testdata/translation/plain.yaml")
		pod.Spec.SecurityContext = &v1.PodSecurityContext{}
		node := recordedNodes()["cgroupv1"]
		spoil(pod, &node)
		_, err := NewContainerConfig(pod, &pod.Spec.Containers[0], node, ContainerParams{})
		if _, ok := errors.AsType[*ConfigError](err); !ok || strings.Contains(err.Error(), "web") {
			t.Errorf("%s, container: %v", name, err)
		}
		// The other cases only concern containers.
		if name != "period" && name != "policy" {
			continue
		}
		_, err = NewSandboxConfig(pod, node, SandboxParams{})
		if _, ok := errors.AsType[*ConfigError](err); !ok || strings.Contains(err.Error(), "web") {
			t.Errorf("%s, sandbox: %v", name, err)
		}
	}
}

// A container has the groups of its volumes after the pod's own, each once.
func TestNewContainerConfig_GroupsOfVolumes(t *testing.T) {
	pod := loadPod(t, "testdata/translation/plain.yaml")
	for want, sc := range map[string]*v1.PodSecurityContext{
		"[5 6]":     nil,
		"[2 3 5 6]": {FSGroup: new(int64(2)), SupplementalGroups: []int64{3, 5}},
	} {
		pod.Spec.SecurityContext = sc
		config, err := NewContainerConfig(pod, &pod.Spec.Containers[0], recordedNodes()["cgroupv1"],
			ContainerParams{Groups: []int64{5, 6}})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(config.Linux.SecurityContext.SupplementalGroups); got != want {
			t.Errorf("got the groups %s, want %s", got, want)
		}
	}
}

func TestTargetOfAnEphemeralContainer(t *testing.T) {
	pod := loadPod(t, "testdata/translation/plain.yaml")
	for _, shared := range []bool{false, true} {
		pod.Spec.ShareProcessNamespace = &shared
		config, err := NewContainerConfig(pod, &pod.Spec.Containers[0], recordedNodes()["cgroupv1"],
			ContainerParams{TargetID: "abc"})
		if err != nil {
			t.Fatal(err)
		}
		options := config.Linux.SecurityContext.NamespaceOptions
		if got := options.Pid == runtimeapi.NamespaceMode_TARGET && options.TargetId == "abc"; got == shared {
			t.Errorf("shared %t: %v", shared, options)
		}
	}
}

func TestStopSignals(t *testing.T) {
	for name, want := range map[v1.Signal]runtimeapi.Signal{
		"SIGTERM": runtimeapi.Signal_SIGNAL_SIGTERM, "SIGRTMIN": runtimeapi.Signal_SIGNAL_SIGRTMIN,
		"SIGRTMIN+3": runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3, "SIGRTMAX-14": runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS14,
	} {
		got, err := stopSignal(&v1.Container{Lifecycle: &v1.Lifecycle{StopSignal: &name}})
		if err != nil || got != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if got, err := stopSignal(&v1.Container{Lifecycle: &v1.Lifecycle{}}); err != nil || got != 0 {
		t.Errorf("no signal: %s, %v", got, err)
	}
}

// A container has the CPUs of its pin. CPUs of its own are not limited besides, neither for it nor for its pod as a whole.
func TestPins(t *testing.T) {
	pod := loadPod(t, "testdata/translation/guaranteed-privileged.yaml")
	node := recordedNodes()["cgroupv1"]
	own, other := &pod.Spec.Containers[0], &pod.Spec.Containers[1]
	node.Pin = func(uid, container string) Pin {
		if uid == string(pod.UID) && container == own.Name {
			return Pin{CPUs: "1,3", Unlimited: true}
		}
		return Pin{CPUs: "0,2"}
	}
	limited := NewContainerResources(pod, other, node)
	if r := NewContainerResources(pod, own, node); r.CpusetCpus != "1,3" || r.CpuQuota != -1 || r.CpuPeriod == 0 ||
		limited.CpusetCpus != "0,2" || limited.CpuQuota <= 0 {
		t.Errorf("got %v and %v", r, limited)
	}
	if r, _ := sandboxResources(pod, node); r.CpuQuota != -1 || !node.UnlimitedCPU(pod) {
		t.Errorf("the pod as a whole: got %v", r)
	}
	node.CPUCFSQuota = false
	if r := NewContainerResources(pod, own, node); r.CpuQuota != 0 {
		t.Errorf("without quotas: got %v", r)
	}
}

func TestQuotasCanBeOff(t *testing.T) {
	pod := loadPod(t, "testdata/translation/guaranteed-privileged.yaml")
	node := recordedNodes()["cgroupv1"]
	node.CPUCFSQuota = false
	if r := NewContainerResources(pod, &pod.Spec.Containers[1], node); r.CpuQuota != 0 || r.CpuPeriod != 0 {
		t.Errorf("%v", r)
	}
}
