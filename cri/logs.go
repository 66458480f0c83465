package cri

import (
	"path/filepath"
	"strconv"
	"strings"

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

// NextRestartCount is one above the highest restart count among a container's
// log files (N.log, N.log.<rotation>), 0 where there are none. It goes on
// counting where the runtime has lost its containers (a reboot), so that no old
// log is overwritten. names are the plain files of ContainerLogDir.
func NextRestartCount(names []string) uint32 {
	next := uint64(0)
	for _, name := range names {
		number, rest, found := strings.Cut(name, ".log")
		if !found || (rest != "" && rest[0] != '.') {
			continue
		}
		// 31 bits: an API restart count is an int32. Larger is not ours.
		if n, err := strconv.ParseUint(number, 10, 31); err == nil && n+1 > next {
			next = n + 1
		}
	}
	return uint32(next)
}
