package volumes

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri/translate"
)

// downwardAPI is what the pod's own manifest says, in files.
type downwardAPI struct{}

func (downwardAPI) handles(v *v1.Volume) bool { return v.DownwardAPI != nil }

func (downwardAPI) files(p podFolder, v *v1.Volume) (map[string]file, error) {
	out := map[string]file{}
	return out, downwardFiles(p, out, v.DownwardAPI.Items,
		modeOr(v.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode))
}

// downwardFiles adds what the items ask for.
func downwardFiles(p podFolder, out map[string]file, items []v1.DownwardAPIVolumeFile, mode int32) error {
	for i := range items {
		item := &items[i]
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = translate.FieldValue(p.pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = translate.ResourceValue(p.pod, item.ResourceFieldRef, p.node.Allocatable)
		default:
			err = fmt.Errorf("neither a field nor a resource is asked for")
		}
		if err != nil {
			return permanent("file %q: %w", item.Path, err)
		}
		out[item.Path] = file{data: []byte(text), mode: modeOr(item.Mode, mode)}
	}
	return nil
}

func modeOr(mode *int32, otherwise int32) int32 {
	if mode == nil {
		return otherwise
	}
	return *mode
}

// tellsOfPod says whether a pod has volumes with what its own manifest says.
func tellsOfPod(pod *v1.Pod) bool {
	for _, v := range podspec.UsedVolumes(pod) {
		if v.DownwardAPI != nil {
			return true
		}
		if v.Projected != nil {
			for i := range v.Projected.Sources {
				if v.Projected.Sources[i].DownwardAPI != nil {
					return true
				}
			}
		}
	}
	return false
}
