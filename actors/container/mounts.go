package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilio "k8s.io/utils/io"

	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/linux/subpath"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

const etcHosts = "/etc/hosts"

// maxHosts limits the size of the node's hosts file in bytes. A container with a hostPath may write to it.
// Block lists of names have megabytes.
const maxHosts = 32 << 20

// mounts returns the container's mounts: its volumes, its termination log, and /etc/hosts unless a volume is mounted there.
func mounts(ctx context.Context, h *host.Host, w messages.RunContainer, env []translate.EnvVar) ([]*runtimeapi.Mount, error) {
	out := make([]*runtimeapi.Mount, 0, len(w.Container.VolumeMounts)+2)
	ownHosts := false
	for i := range w.Container.VolumeMounts {
		vm := &w.Container.VolumeMounts[i]
		m, err := volumeMount(h, w, vm)
		if err != nil {
			return nil, err
		}
		if m.Image != nil { // the runtime resolves the subPath
			if m.ImageSubPath, err = subPath(vm, env); m.ImageSubPath != "" && !filepath.IsLocal(m.ImageSubPath) {
				err = fmt.Errorf("subPath %q of volume %q leads out of the image", m.ImageSubPath, vm.Name)
			}
		} else {
			m.HostPath, err = partOf(ctx, h, w, i, m.HostPath, env)
		}
		if err != nil {
			return nil, err
		}
		ownHosts = ownHosts || filepath.Clean(m.ContainerPath) == etcHosts
		out = append(out, m)
	}
	if !ownHosts && (len(w.Sandbox.IPs) > 0 || w.Pod.Spec.HostNetwork) {
		path, err := writeHosts(h, w)
		if err != nil {
			return nil, err
		}
		out = append(out, &runtimeapi.Mount{HostPath: path, ContainerPath: etcHosts, SelinuxRelabel: true})
	}
	if path := w.Container.TerminationMessagePath; path != "" {
		file, err := terminationLog(h, w)
		if err != nil {
			return nil, err
		}
		out = append(out, &runtimeapi.Mount{HostPath: file, ContainerPath: path, SelinuxRelabel: true})
	}
	return out, nil
}

// checkVolumes returns an error with CauseUnmounted if a volume of the container is not as the volumes actor left it: nothing is
// mounted at its path any more, or its folder in the pod's is gone. A container on the plain folder would write to another disk,
// and its files would disappear with the next mount. It asks no file server.
func checkVolumes(h *host.Host, w messages.RunContainer) error {
	folder := h.PodDir(string(w.Pod.UID))
	for _, name := range volumesOf(w.Container) {
		path := w.Volumes[name]
		inPod, inside := strings.CutPrefix(path, folder+"/")
		if !inside { // e.g. a hostPath
			continue
		}
		is, err := isMountPoint(folder, inPod)
		switch {
		case errors.Is(err, os.ErrNotExist), err == nil && !is && w.Mounts[name]:
			return messages.Cause{Code: messages.CauseUnmounted, Name: name, Detail: path}.Errorf(
				"volume %q is no longer mounted at %s", name, path)
		case err != nil:
			return fmt.Errorf("volume %q: %w", name, err)
		}
	}
	return nil
}

func isMountPoint(folder, name string) (bool, error) {
	root, err := safepath.OpenRoot(folder)
	if err != nil {
		return false, err
	}
	defer root.Close() //nolint:errcheck // read only
	return root.IsMountPoint(name)
}

// volumesOf returns the names of the volumes that the container mounts, or has variables of.
func volumesOf(c *v1.Container) (names []string) {
	for i := range c.VolumeMounts {
		names = append(names, c.VolumeMounts[i].Name)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
			names = append(names, from.FileKeyRef.VolumeName)
		}
	}
	return names
}

func volumeMount(h *host.Host, w messages.RunContainer, vm *v1.VolumeMount) (*runtimeapi.Mount, error) {
	path, ok := w.Volumes[vm.Name]
	image, isImage := w.ImageVolumes[vm.Name]
	if !ok && !isImage {
		return nil, fmt.Errorf("volume %q of mount %s is not mounted", vm.Name, vm.MountPath)
	}
	target := vm.MountPath
	if !filepath.IsAbs(target) {
		target = filepath.Join("/", target)
	}
	source := volumeOf(w.Pod, vm.Name)
	m := &runtimeapi.Mount{
		HostPath: path, ContainerPath: target, Readonly: vm.ReadOnly || isImage || agents(source) || readOnly(source),
		SelinuxRelabel: relabel(source) && strings.HasPrefix(path, h.PodDir(string(w.Pod.UID))+"/"),
	}
	if isImage {
		m.Image = &runtimeapi.ImageSpec{Image: image, RuntimeHandler: w.Sandbox.Handler}
		if source.Image != nil {
			m.Image.UserSpecifiedImage = source.Image.Reference
		}
	}
	if p := vm.MountPropagation; p != nil {
		switch *p {
		case v1.MountPropagationBidirectional:
			m.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		case v1.MountPropagationHostToContainer:
			m.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case v1.MountPropagationNone:
		}
	}
	var err error
	m.RecursiveReadOnly, err = recursiveReadOnly(vm, h.Can().RecursiveReadOnlyMounts[w.Sandbox.Handler])
	return m, err
}

// partOf returns the host path of a mount: the volume, or the part of it that is bound for a subPath. If the file server of a
// volume hangs, only the container waits, and for a bounded time, so that its pod can end.
func partOf(
	ctx context.Context, h *host.Host, w messages.RunContainer, index int, volume string, env []translate.EnvVar,
) (string, error) {
	vm := &w.Container.VolumeMounts[index]
	path, err := subPath(vm, env)
	if err != nil || path == "" {
		return volume, err
	}
	pod := h.PodDir(string(w.Pod.UID))
	part := subpath.Part{
		Pod: pod, From: volume, Volume: placeName(pod, volume, vm.Name), Container: w.Container.Name, Index: index, Path: path,
		PassOn: vm.MountPropagation != nil && *vm.MountPropagation == v1.MountPropagationBidirectional,
	}
	ctx, cancel := context.WithTimeout(ctx, safepath.ServerTimeout)
	defer cancel()
	owner, file := safepath.Owner{Namespace: w.Pod.Namespace, Pod: string(w.Pod.UID)}, w.Pod.Namespace+"/"+part.Volume
	bound, err := safepath.Bounded(ctx, owner, file, "subPath "+part.Place(), func() (subpath.Part, error) {
		_, err := subpath.Bind(ctx, part)
		return part, err
	})
	if err == nil && bound != part {
		err = fmt.Errorf("subPath %q of volume %q: an earlier bind has only just ended", path, vm.Name)
	}
	return part.Place(), err
}

// placeName returns the volume's name in the paths of its parts. Like the kubelet, it uses the name of the volume's folder, which
// is the PersistentVolume's for a claim. A kubelet that takes over finds parts by that name alone.
func placeName(podDir, volume, name string) string {
	below, _ := strings.CutPrefix(volume, filepath.Join(podDir, "volumes")+"/")
	if elements := strings.Split(below, "/"); below != volume && len(elements) > 1 {
		return elements[1] // after the name of the plugin
	}
	return name
}

// subPath returns the part of its volume that a mount requests; empty for the whole volume.
func subPath(vm *v1.VolumeMount, env []translate.EnvVar) (string, error) {
	if vm.SubPathExpr == "" {
		return vm.SubPath, nil
	}
	path, err := translate.ExpandSubPath(vm.SubPathExpr, env)
	if err != nil {
		return "", fmt.Errorf("subPathExpr %q of volume %q: %w", vm.SubPathExpr, vm.Name, err)
	}
	return path, nil
}

// recursiveReadOnly reports whether mounts below a read-only volume are read-only, too (KEP-3857).
func recursiveReadOnly(vm *v1.VolumeMount, able bool) (bool, error) {
	switch mode := vm.RecursiveReadOnly; {
	case mode == nil || *mode == v1.RecursiveReadOnlyDisabled:
		return false, nil
	case *mode == v1.RecursiveReadOnlyEnabled && !able:
		return false, fmt.Errorf("mount %s: recursiveReadOnly is Enabled, which this container runtime cannot do", vm.MountPath)
	default:
		return able, nil
	}
}

// volumeOf returns the pod's volume with this name, or the zero value.
func volumeOf(pod *v1.Pod, name string) (v v1.VolumeSource) {
	if found := find.In(pod.Spec.Volumes, func(v *v1.Volume) bool { return v.Name == name }); found != nil {
		return found.VolumeSource
	}
	return v
}

// agents reports whether the agent writes the volume's files, so that containers only read them.
func agents(v v1.VolumeSource) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// readOnly reports whether the volume itself is read-only, regardless of its mounts.
func readOnly(v v1.VolumeSource) bool {
	return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly ||
		v.CSI != nil && v.CSI.ReadOnly != nil && *v.CSI.ReadOnly
}

// relabel reports whether the runtime may give the volume the container's SELinux label. The host's files keep their label. So
// do images, because the runtime would rewrite each file. For a claim, the caller decides by path whether it is the host's.
func relabel(v v1.VolumeSource) bool {
	return v != (v1.VolumeSource{}) && v.HostPath == nil && v.Image == nil
}

// keptTerminationLogs is the number of a container's latest termination logs that are kept. Only those of dead containers are
// read, and the agent keeps fewer of these.
const keptTerminationLogs = 100

// terminationLog creates the file for the application's termination message. The attempt is its name, which makes the call
// idempotent. It removes an old one, so that a container that crashes for years does not use up the inodes
// (kubernetes/kubernetes#106735).
func terminationLog(h *host.Host, w messages.RunContainer) (string, error) {
	dir := h.ContainerDir(string(w.Pod.UID), w.Container.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("folder of the termination log: %w", err)
	}
	logOf := func(attempt uint32) string { return filepath.Join(dir, fmt.Sprintf("%08x", attempt)) }
	path := logOf(w.Attempt)
	if w.Attempt >= keptTerminationLogs {
		_ = os.Remove(logOf(w.Attempt - keptTerminationLogs)) // no harm comes from one that stays
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("termination log: %w", err)
	}
	err = f.Chmod(0o666) // regardless of the umask, since any user may run in the container
	return path, errors.Join(err, f.Close())
}

// writeHosts writes the pod's /etc/hosts as the kubelet does.
func writeHosts(h *host.Host, w messages.RunContainer) (string, error) {
	path := filepath.Join(h.PodDir(string(w.Pod.UID)), "etc-hosts")
	var text string
	if w.Pod.Spec.HostNetwork {
		node, err := readAtMost(etcHosts, maxHosts)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("the node's hosts file: %w", err)
		}
		text = "# Kubernetes-managed hosts file (host network).\n" + string(node)
	} else {
		var err error
		if text, err = ownHosts(w, h.Node.ClusterDomain); err != nil {
			return "", err
		}
	}
	text += hostAliases(w.Pod.Spec.HostAliases)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", fmt.Errorf("pod folder: %w", err)
	}
	// The file is written in place, not renamed: the pod's running containers have it mounted. They can write to it, and give
	// it any size.
	if old, err := readAtMost(path, int64(len(text))); err != nil || string(old) != text {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("hosts file: %w", err)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // every user of the container reads it, whatever the umask
		return "", fmt.Errorf("hosts file: %w", err)
	}
	return path, nil
}

// readAtMost reads a file. It stops with an error when the file is larger than limit.
func readAtMost(path string, limit int64) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if data, err = utilio.ReadAtMost(f, limit+1); err != nil {
		return nil, fmt.Errorf("%s, of which at most %d bytes are read: %w", path, limit, err)
	}
	return data, nil
}

func ownHosts(w messages.RunContainer, clusterDomain string) (string, error) {
	name, domain, err := translate.HostnameAndDomain(w.Pod, clusterDomain)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
	for _, ip := range w.Sandbox.IPs {
		b.WriteString(ip)
		if domain != "" {
			b.WriteString("\t" + name + "." + domain)
		}
		b.WriteString("\t" + name + "\n")
	}
	return b.String(), nil
}

func hostAliases(aliases []v1.HostAlias) string {
	if len(aliases) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, a := range aliases {
		b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, "\t") + "\n")
	}
	return b.String()
}
