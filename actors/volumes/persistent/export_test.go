package persistent

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
)

// Exported names for tests that run the actor. The package of the actor imports this one.
type (
	StagedDriver = stagedDriver
	Progress     = progress
)

const (
	Begun = begun
	Done  = done
)

var (
	StagedKey      = stagedKey
	UniqueName     = uniqueName
	AttachmentName = attachmentName
	HasCondition   = hasCondition
)

func (s *Storage) CSIFolder() string { return s.csiFolder() }

func (s *Storage) Published() (published map[string]csi.Record, lost lostRecords, err error) {
	return s.published()
}

func (s *Storage) MayHave(lost lostRecords, key string) error { return s.mayHave(lost, key) }

func (s *Storage) DriverSpec(name string) (storagev1.CSIDriverSpec, bool) {
	return s.objects.spec(name)
}

// EndNormalWait ends the normal time of attaching a volume.
func (s *Storage) EndNormalWait(uid types.UID, volume string) {
	s.change(uid, volume, func(v *podVolume) { v.waits = v.waits.Add(-normalWait) })
}

func (s *Storage) SetProgress(uid types.UID, volume string, p Progress) {
	s.change(uid, volume, func(v *podVolume) { v.progress = p })
}

func (s *Storage) Want(uid types.UID, volume, name string) {
	s.change(uid, volume, func(v *podVolume) { v.wants = name })
}

// ForgetAll resets the state to that of a new process.
func (s *Storage) ForgetAll() {
	clear(s.pods)
	clear(s.ready)
}

func (s *Storage) Hold(pv string) (release func()) { return s.hold(pv) }
