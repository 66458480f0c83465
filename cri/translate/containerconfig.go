package translate

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerParams is what a container needs to know besides the pod and the node.
type ContainerParams struct {
	// RestartCount is 0 for the first container of a name, then one above the
	// last; it is also the CRI's attempt and the number in the log's name.
	RestartCount uint32
	// ImageRef is PullImage's or ImageStatus's answer for the container's image.
	ImageRef string
	// ImageUID and ImageUsername are ImageUser's.
	ImageUID      *int64
	ImageUsername string
	// Env is ResolveEnv's.
	Env []EnvVar
	// Mounts are all mounts, the termination log's and /etc/hosts' among them.
	Mounts     []*runtimeapi.Mount
	Devices    []*runtimeapi.Device
	CDIDevices []*runtimeapi.CDIDevice
	// Annotations are added below the kubelet's own: those of device plugins,
	// cri.AnnotationBackoff.
	Annotations map[string]string
	// TargetID is the container whose processes an ephemeral one shares.
	TargetID string
}

// NewContainerConfig is the container as the kubelet of 1.36 asks for it. It
// reads nothing but its arguments and changes none of them; an error is a
// *ConfigError. The log folder has to exist before CreateContainer.
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

// stopSignal is lifecycle.stopSignal (KEP-4960), the runtime's choice when not set.
// The CRI spells SIGRTMIN+3 as SIGNAL_SIGRTMINPLUS3.
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
