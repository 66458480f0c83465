package persistent

import (
	"fmt"
	"math"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
)

// groupAnnotation is Kubernetes' annotation of a PersistentVolume with the group of its files. The containers of a pod with the
// volume have it as a supplemental group. The kubelet gives it to the sandbox, too. Here the sandbox starts while volumes are
// mounted, and its only process uses no volume.
const groupAnnotation = "pv.beta.kubernetes.io/gid"

// parseGroup returns the group of an annotation. Like the API server for supplementalGroups, it admits 0 to 2147483647: runtimes
// cut larger numbers to 32 bits, so that 4294967296 would be the group of root.
func parseGroup(text string) (int64, error) {
	group, err := strconv.ParseInt(text, 10, 64)
	if err != nil || group < 0 || group > math.MaxInt32 {
		return 0, fmt.Errorf("annotation %s is %.40q, and not a number from 0 to %d", groupAnnotation, text, math.MaxInt32)
	}
	return group, nil
}

// recordGroup keeps the annotation of a pod's volume for later mounts, when the volume cannot be read. Like the kubelet, it
// ignores an invalid one; an Event reports that, once.
func (s *Storage) recordGroup(p kinds.Folder, volume string, pv *v1.PersistentVolume) {
	text := pv.Annotations[groupAnnotation]
	h, known := s.lookUp(p.Pod.UID, volume)
	if !known || h.group == text {
		return
	}
	s.change(p.Pod.UID, volume, func(h *podVolume) { h.group = text })
	if _, err := parseGroup(text); err != nil && text != "" {
		p.Record(messages.PodEvent(p.Pod, "", v1.EventTypeWarning, messages.EventInvalidGroup, fmt.Sprintf(
			"PersistentVolume %s: %v; its containers do not get the group", pv.Name, err), time.Now()))
	}
}

// setGroup has the containers of a pod get the group of a mounted volume.
func (s *Storage) setGroup(p kinds.Folder, volume string) {
	h, _ := s.lookUp(p.Pod.UID, volume)
	if group, err := parseGroup(h.group); err == nil {
		p.SetGroup(group)
	}
}
