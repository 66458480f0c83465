package cri

import (
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// PodLogDir is the pod's log folder under root (podLogsDir, /var/log/pods):
// <namespace>_<name>_<uid>.
func PodLogDir(root string, pod *v1.Pod) string {
	return filepath.Join(root, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// ContainerLogDir is the container's folder inside PodLogDir.
func ContainerLogDir(root string, pod *v1.Pod, container string) string {
	return filepath.Join(PodLogDir(root, pod), container)
}

// ContainerLogPath is the container's log file relative to PodLogDir, as the CRI
// wants it: <container>/<restart count>.log.
func ContainerLogPath(container string, restartCount uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(restartCount), 10)+".log")
}
