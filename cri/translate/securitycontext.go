package translate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// Paths of the kernel that a container may not read or not write, from moby's lists.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// effectiveSecurityContext returns the container's security context, with the pod's values as defaults.
func effectiveSecurityContext(pod *v1.Pod, container *v1.Container) v1.SecurityContext {
	sc, p := ptr.Deref(container.SecurityContext, v1.SecurityContext{}), podSecurityContext(pod)
	sc.SELinuxOptions = cmp.Or(sc.SELinuxOptions, p.SELinuxOptions)
	sc.RunAsUser = cmp.Or(sc.RunAsUser, p.RunAsUser)
	sc.RunAsGroup = cmp.Or(sc.RunAsGroup, p.RunAsGroup)
	sc.RunAsNonRoot = cmp.Or(sc.RunAsNonRoot, p.RunAsNonRoot)
	return sc
}

func podSecurityContext(pod *v1.Pod) v1.PodSecurityContext {
	return ptr.Deref(pod.Spec.SecurityContext, v1.PodSecurityContext{})
}

func containerSecurityContext(
	pod *v1.Pod, container *v1.Container, node NodeFacts, p ContainerParams,
) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := effectiveSecurityContext(pod, container)
	out := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:   capabilities(sc.Capabilities),
		SelinuxOptions: selinuxOptions(sc.SELinuxOptions),
		RunAsUser:      int64Value(sc.RunAsUser),
		RunAsGroup:     int64Value(sc.RunAsGroup),
		Privileged:     isTrue(sc.Privileged),
		ReadonlyRootfs: isTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:     sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
	}
	if out.RunAsUser == nil {
		out.RunAsUser = int64Value(p.ImageUID)
		out.RunAsUsername = p.ImageUsername
	}
	if sc.ProcMount == nil || *sc.ProcMount != v1.UnmaskedProcMount {
		out.MaskedPaths = append(append([]string{}, maskedPaths...), node.ThrottlePaths...)
		out.ReadonlyPaths = append([]string{}, readonlyPaths...)
	}
	var err error
	if out.Seccomp, err = seccompProfile(pod, container, node); err != nil {
		return nil, err
	}
	//nolint:staticcheck // runtimes before the field read it
	out.Apparmor, out.ApparmorProfile, err = apparmorProfile(pod, container)
	if err != nil {
		return nil, err
	}
	out.NamespaceOptions = namespaces(pod, p.Users)
	out.SupplementalGroups, out.SupplementalGroupsPolicy, err = groups(pod, p.Groups...)
	return out, err
}

func sandboxSecurityContext(pod *v1.Pod, users *runtimeapi.UserNamespace) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	out := &runtimeapi.LinuxSandboxSecurityContext{
		Privileged: hasPrivilegedContainer(pod),
		// The pause process needs no more than the default profile, regardless of the pod's containers (kubernetes issue 84623).
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	sc := podSecurityContext(pod)
	out.RunAsUser = int64Value(sc.RunAsUser)
	out.RunAsGroup = int64Value(sc.RunAsGroup)
	out.SelinuxOptions = selinuxOptions(sc.SELinuxOptions)
	out.NamespaceOptions = namespaces(pod, users)
	var err error
	out.SupplementalGroups, out.SupplementalGroupsPolicy, err = groups(pod)
	return out, err
}

// groups returns fsGroup, then supplementalGroups, and then those of more that the pod does not have. The API and the CRI use the
// same names for the policies (KEP-3619).
func groups(pod *v1.Pod, more ...int64) ([]int64, runtimeapi.SupplementalGroupsPolicy, error) {
	sc := podSecurityContext(pod)
	var list []int64
	if sc.FSGroup != nil {
		list = append(list, *sc.FSGroup)
	}
	policy := ptr.Deref(sc.SupplementalGroupsPolicy, v1.SupplementalGroupsPolicyMerge)
	value, ok := runtimeapi.SupplementalGroupsPolicy_value[string(policy)]
	if !ok {
		return nil, 0, fmt.Errorf("supplementalGroupsPolicy %q is not supported", policy)
	}
	list = append(list, sc.SupplementalGroups...)
	for _, g := range more {
		if !slices.Contains(list, g) {
			list = append(list, g)
		}
	}
	return list, runtimeapi.SupplementalGroupsPolicy(value), nil
}

// namespaces returns the namespaces that the pod's processes share. The user namespace is nil for the host's.
func namespaces(pod *v1.Pod, users *runtimeapi.UserNamespace) *runtimeapi.NamespaceOption {
	mode := func(host bool) runtimeapi.NamespaceMode {
		if host {
			return runtimeapi.NamespaceMode_NODE
		}
		return runtimeapi.NamespaceMode_POD
	}
	out := &runtimeapi.NamespaceOption{
		Ipc:           mode(pod.Spec.HostIPC),
		Network:       mode(pod.Spec.HostNetwork),
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		UsernsOptions: users,
	}
	if users == nil {
		out.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
	}
	switch {
	case pod.Spec.HostPID:
		out.Pid = runtimeapi.NamespaceMode_NODE
	case isTrue(pod.Spec.ShareProcessNamespace):
		out.Pid = runtimeapi.NamespaceMode_POD
	}
	return out
}

func hasPrivilegedContainer(pod *v1.Pod) bool {
	privileged := func(sc *v1.SecurityContext) bool { return sc != nil && isTrue(sc.Privileged) }
	for c := range containersOf(&pod.Spec) {
		if privileged(c.SecurityContext) {
			return true
		}
	}
	return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool {
		return privileged(c.SecurityContext)
	})
}

func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, name := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

func selinuxOptions(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func int64Value(n *int64) *runtimeapi.Int64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *n}
}

// verifyRunAsNonRoot rejects a container with runAsNonRoot that would run as root, or whose image has a user without a known ID.
// uid and username are the result of cri.ImageUser.
func verifyRunAsNonRoot(pod *v1.Pod, container *v1.Container, uid *int64, username string) error {
	sc := effectiveSecurityContext(pod, container)
	switch {
	case !isTrue(sc.RunAsNonRoot):
		return nil
	case sc.RunAsUser != nil && *sc.RunAsUser == 0:
		return fmt.Errorf("runAsNonRoot is set, but so is runAsUser: 0")
	case sc.RunAsUser != nil:
		return nil
	case uid == nil && username != "":
		return fmt.Errorf("runAsNonRoot is set, and the image's user %q is not numeric: whether it is root is unknown",
			username)
	case uid != nil && *uid == 0:
		return fmt.Errorf("runAsNonRoot is set, but the image runs as root")
	case uid != nil && (*uid < 0 || *uid > math.MaxInt32):
		return fmt.Errorf("runAsNonRoot is set, but the image's user ID %d is not between 1 and %d", *uid, math.MaxInt32)
	}
	return nil
}
