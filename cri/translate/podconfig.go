package translate

import (
	"path/filepath"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
)

// ConfigError is a pod that cannot be translated; no request was made. It becomes the reason CreateContainerConfigError or
// FailedCreatePodSandBox of the pod or container, which it does not name.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap exposes the cause to errors.Is.
func (e *ConfigError) Unwrap() error { return e.Err }

// Cause implements messages.CauseError.
func (e *ConfigError) Cause() messages.Cause { return messages.CauseOf(e.Err) }

// SandboxParams are the inputs of a sandbox's configuration besides the pod and the node.
type SandboxParams struct {
	// Attempt is 0 for the first sandbox of a pod, then one above the last.
	Attempt uint32
	// CgroupParent is the pod's cgroup in the runtime driver's spelling.
	CgroupParent string
	// DNS is the result of NewDNSConfig.
	DNS *runtimeapi.DNSConfig
	// Users is the pod's user namespace; nil: the host's.
	Users *runtimeapi.UserNamespace
}

// NewSandboxConfig returns the pod's sandbox configuration as the kubelet 1.36 requests it. It only reads its arguments; an error
// is a *ConfigError. The log folder has to exist before RunPodSandbox.
func NewSandboxConfig(pod *v1.Pod, node NodeFacts, p SandboxParams) (*runtimeapi.PodSandboxConfig, error) {
	fail := func(err error) (*runtimeapi.PodSandboxConfig, error) {
		return nil, &ConfigError{err}
	}
	if err := checkQuotaPeriod(node); err != nil {
		return fail(err)
	}
	hostname, err := sandboxHostname(pod, node.ClusterDomain)
	if err != nil {
		return fail(err)
	}
	security, err := sandboxSecurityContext(pod, p.Users)
	if err != nil {
		return fail(err)
	}
	linux := &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent:    p.CgroupParent,
		SecurityContext: security,
		Sysctls:         map[string]string{},
	}
	for _, s := range podSecurityContext(pod).Sysctls {
		linux.Sysctls[s.Name] = s.Value
	}
	linux.Resources, linux.Overhead = sandboxResources(pod, node)
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: p.Attempt,
		},
		Hostname:     hostname,
		LogDirectory: PodLogDir(node.PodLogsDir, pod),
		DnsConfig:    p.DNS,
		PortMappings: portMappings(pod),
		Labels:       sandboxLabels(pod),
		Annotations:  bounded(pod.Annotations),
		Linux:        linux,
	}, nil
}

// portMappings lists the ports of all containers, with and without a host port. It includes those of a pod on the host's network,
// which runtimes ignore. Within one container a name, or an unnamed combination, counts once.
func portMappings(pod *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for i := range pod.Spec.Containers {
		var seen []v1.ContainerPort
		for _, p := range pod.Spec.Containers[i].Ports {
			key := p
			if p.Name != "" {
				key = v1.ContainerPort{Name: p.Name}
			}
			if slices.Contains(seen, key) {
				continue
			}
			seen = append(seen, key)
			out = append(out, &runtimeapi.PortMapping{
				Protocol:      runtimeapi.Protocol(runtimeapi.Protocol_value[string(p.Protocol)]), // TCP by default
				ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
			})
		}
	}
	return out
}

// PodLogDir returns the pod's log folder under root (podLogsDir, /var/log/pods): <namespace>_<name>_<uid>.
func PodLogDir(root string, pod *v1.Pod) string {
	return filepath.Join(root, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// ContainerLogDir returns the container's folder inside PodLogDir.
func ContainerLogDir(root string, pod *v1.Pod, container string) string {
	return filepath.Join(PodLogDir(root, pod), container)
}

// ContainerLogPath returns the container's log file relative to PodLogDir, in the CRI's form: <container>/<restart count>.log.
func ContainerLogPath(container string, restartCount uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(restartCount), 10)+".log")
}
