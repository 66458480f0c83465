package translate

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerParams are the inputs of a container's configuration besides the pod and the node.
type ContainerParams struct {
	// RestartCount is 0 for the first container of a name, then one above the last; it is also the CRI's attempt and the number
	// in the log's name.
	RestartCount uint32
	// ImageRef is the result of PullImage or ImageStatus for the container's image.
	ImageRef string
	// ImageUID and ImageUsername are the result of cri.ImageUser.
	ImageUID      *int64
	ImageUsername string
	// Env is the result of ResolveEnv.
	Env []EnvVar
	// Mounts holds all mounts, including the termination log and /etc/hosts.
	Mounts []*runtimeapi.Mount
	// Groups are supplemental groups of the pod's volumes, in addition to the pod's own.
	Groups []int64
	// Users is the pod's user namespace; nil: the host's.
	Users      *runtimeapi.UserNamespace
	Devices    []*runtimeapi.Device
	CDIDevices []*runtimeapi.CDIDevice
	// Annotations are added unless the kubelet's own have the same key: those of device plugins, cri.AnnotationBackoff.
	Annotations map[string]string
	// TargetID is the container that an ephemeral container shares processes with.
	TargetID string
}

// NewContainerConfig returns the container's configuration as the kubelet 1.36 requests it. It only reads its arguments and
// changes none of them; an error is a *ConfigError. The log folder has to exist before CreateContainer.
func NewContainerConfig(pod *v1.Pod, container *v1.Container, node NodeFacts, p ContainerParams) (
	config *runtimeapi.ContainerConfig, err error) {
	defer func() {
		if err != nil {
			err = &ConfigError{err}
		}
	}()
	if err := checkQuotaPeriod(node); err != nil {
		return nil, err
	}
	if err := verifyRunAsNonRoot(pod, container, p.ImageUID, p.ImageUsername); err != nil {
		return nil, err
	}
	annotations, err := containerAnnotations(pod, container, p.RestartCount, p.Annotations)
	if err != nil {
		return nil, err
	}
	signal, err := stopSignal(container)
	if err != nil {
		return nil, err
	}
	security, err := containerSecurityContext(pod, container, node, p)
	if err != nil {
		return nil, err
	}
	if p.TargetID != "" && security.NamespaceOptions.Pid == runtimeapi.NamespaceMode_CONTAINER {
		security.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		security.NamespaceOptions.TargetId = p.TargetID
	}
	lookup, left := lookupIn(envMap(p.Env)), maxStrings
	for _, e := range p.Env {
		left -= envSize(e.Name, e.Value)
	}
	command := expandAll(container.Command, lookup, &left)
	args := expandAll(container.Args, lookup, &left)
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: container.Name, Attempt: p.RestartCount},
		Image:       &runtimeapi.ImageSpec{Image: p.ImageRef, UserSpecifiedImage: container.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  container.WorkingDir,
		Envs:        keyValues(p.Env),
		Labels:      containerLabels(pod, container),
		Annotations: annotations,
		Mounts:      p.Mounts,
		Devices:     p.Devices,
		CDIDevices:  p.CDIDevices,
		LogPath:     ContainerLogPath(container.Name, p.RestartCount),
		Stdin:       container.Stdin,
		StdinOnce:   container.StdinOnce,
		Tty:         container.TTY,
		StopSignal:  signal,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       NewContainerResources(pod, container, node),
			SecurityContext: security,
		},
	}, nil
}

func keyValues(env []EnvVar) []*runtimeapi.KeyValue {
	var out []*runtimeapi.KeyValue
	for _, e := range env {
		out = append(out, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	return out
}

// stopSignal returns lifecycle.stopSignal (KEP-4960), or the runtime's default. The CRI spells SIGRTMIN+3 as
// SIGNAL_SIGRTMINPLUS3.
func stopSignal(container *v1.Container) (runtimeapi.Signal, error) {
	if container.Lifecycle == nil || container.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT, nil
	}
	name := string(*container.Lifecycle.StopSignal)
	value, ok := runtimeapi.Signal_value["SIGNAL_"+strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)]
	if !ok || !strings.HasPrefix(name, "SIG") {
		return 0, fmt.Errorf("stopSignal %q is not known", name)
	}
	return runtimeapi.Signal(value), nil
}
