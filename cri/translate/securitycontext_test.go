package translate

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestVerifyRunAsNonRoot(t *testing.T) {
	yes, no := true, false
	n := func(v int64) *int64 { return &v }
	for _, tc := range []struct {
		name     string
		pod      *v1.PodSecurityContext
		own      *v1.SecurityContext
		uid      *int64
		username string
		fine     bool
	}{
		{"not asked for", nil, nil, n(0), "", true},
		{"image is root", &v1.PodSecurityContext{RunAsNonRoot: &yes}, nil, n(0), "", false},
		{"image is not", &v1.PodSecurityContext{RunAsNonRoot: &yes}, nil, n(1), "", true},
		{"container overrules", &v1.PodSecurityContext{RunAsNonRoot: &yes}, &v1.SecurityContext{RunAsNonRoot: &no}, n(0), "",
			true},
		{"container alone", nil, &v1.SecurityContext{RunAsNonRoot: &yes}, n(0), "", false},
		{"pod's user", &v1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: n(5)}, nil, n(0), "", true},
		{"container's user is root", &v1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: n(5)},
			&v1.SecurityContext{RunAsUser: n(0)}, n(1), "", false},
		{"a name", &v1.PodSecurityContext{RunAsNonRoot: &yes}, nil, nil, "www", false},
		{"out of range", &v1.PodSecurityContext{RunAsNonRoot: &yes}, nil, n(math.MaxInt32 + 1), "", false},
		{"negative", &v1.PodSecurityContext{RunAsNonRoot: &yes}, nil, n(-1), "", false},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{SecurityContext: tc.pod}}
		if err := verifyRunAsNonRoot(pod, &v1.Container{SecurityContext: tc.own}, tc.uid, tc.username); (err == nil) != tc.fine {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// A seccomp profile of an unknown type starts no container, rather than an unconfined one (kubernetes/kubernetes#141958).
func TestSeccompProfile_Types(t *testing.T) {
	for kind, want := range map[v1.SeccompProfileType]runtimeapi.SecurityProfile_ProfileType{
		v1.SeccompProfileTypeUnconfined:     runtimeapi.SecurityProfile_Unconfined,
		v1.SeccompProfileTypeRuntimeDefault: runtimeapi.SecurityProfile_RuntimeDefault,
		"":                                  -1, "Notify": -1,
	} {
		c := &v1.Container{SecurityContext: &v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{Type: kind}}}
		got, err := seccompProfile(&v1.Pod{}, c, NodeFacts{})
		if err == nil != (want >= 0) || err == nil && got.GetProfileType() != want {
			t.Errorf("type %q: %v, %v", kind, got, err)
		}
	}
}

func TestTheImagesUserIsTheLastResort(t *testing.T) {
	pod := loadPod(t, "testdata/translation/plain.yaml")
	container := &pod.Spec.Containers[0]
	config, err := NewContainerConfig(pod, container, recordedNodes()["cgroupv1"], ContainerParams{ImageUsername: "www"})
	if err != nil || config.Linux.SecurityContext.RunAsUsername != "www" || config.Linux.SecurityContext.RunAsUser != nil {
		t.Errorf("%v, %v", config, err)
	}
	uid := int64(9)
	container.SecurityContext = &v1.SecurityContext{RunAsUser: &uid}
	config, err = NewContainerConfig(pod, container, recordedNodes()["cgroupv1"],
		ContainerParams{ImageUsername: "www"})
	if err != nil || config.Linux.SecurityContext.RunAsUsername != "" || config.Linux.SecurityContext.RunAsUser.Value != 9 {
		t.Errorf("%v, %v", config, err)
	}
}

func TestPrivilegedSandboxForAnyContainer(t *testing.T) {
	yes := true
	sc := &v1.SecurityContext{Privileged: &yes}
	for name, spec := range map[string]v1.PodSpec{
		"init":      {InitContainers: []v1.Container{{SecurityContext: sc}}},
		"regular":   {Containers: []v1.Container{{}, {SecurityContext: sc}}},
		"ephemeral": {EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{SecurityContext: sc}}}},
	} {
		if !hasPrivilegedContainer(&v1.Pod{Spec: spec}) {
			t.Errorf("%s container: the sandbox is not privileged", name)
		}
	}
	if hasPrivilegedContainer(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}}}}) {
		t.Error("a sandbox is privileged for nothing")
	}
}

func TestHostPaths(t *testing.T) {
	root := t.TempDir()
	if sizes, paths, err := HostPaths(root); err != nil || sizes != nil || paths != nil {
		t.Errorf("an empty sysfs: %v, %v, %v", sizes, paths, err)
	}
	for _, dir := range []string{
		"kernel/mm/hugepages/hugepages-1048576kB", "kernel/mm/hugepages/hugepages-2048kB", "kernel/mm/hugepages/hugepages-64kB",
		"devices/system/cpu/cpu0/thermal_throttle", "devices/system/cpu/cpu1", "devices/system/cpu/cpufreq/thermal_throttle",
	} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sizes, paths, err := HostPaths(root)
	if err != nil || !reflect.DeepEqual(sizes, []string{"64KB", "2MB", "1GB"}) ||
		!reflect.DeepEqual(paths, []string{"/sys/devices/system/cpu/cpu0/thermal_throttle"}) {
		t.Errorf("%v, %v, %v", sizes, paths, err)
	}
	node := recordedNodes()["cgroupv1"]
	node.ThrottlePaths = paths
	pod := loadPod(t, "testdata/translation/plain.yaml")
	config, err := NewContainerConfig(pod, &pod.Spec.Containers[0], node, ContainerParams{})
	masked := config.GetLinux().GetSecurityContext().GetMaskedPaths()
	if err != nil || len(masked) != len(maskedPaths)+1 || masked[len(masked)-1] != paths[0] {
		t.Errorf("%v, %v", masked, err)
	}
	if err := os.Mkdir(filepath.Join(root, "kernel/mm/hugepages/hugepages-odd"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := HostPaths(root); err == nil {
		t.Error("an unreadable size was passed over")
	}
}

// A pod with a user namespace has its one mapping in the sandbox and in each container, and unmasked proc where it asks for that.
func TestUserNamespace(t *testing.T) {
	pod := loadPod(t, "testdata/translation/plain.yaml")
	node := recordedNodes()["cgroupv1"]
	mapping := []*runtimeapi.IDMapping{{HostId: 131072, ContainerId: 0, Length: 65536}}
	users := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mapping, Gids: mapping}
	sandbox, err := NewSandboxConfig(pod, node, SandboxParams{Users: users})
	if err != nil || !proto.Equal(sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions, users) {
		t.Errorf("the sandbox: %v, %v", sandbox, err)
	}
	unmasked := v1.UnmaskedProcMount
	pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{ProcMount: &unmasked}
	config, err := NewContainerConfig(pod, &pod.Spec.Containers[0], node, ContainerParams{Users: users})
	if err != nil {
		t.Fatal(err)
	}
	sc := config.Linux.SecurityContext
	if !proto.Equal(sc.NamespaceOptions.UsernsOptions, users) || len(sc.MaskedPaths)+len(sc.ReadonlyPaths) > 0 {
		t.Errorf("the container: %v", sc)
	}
}
