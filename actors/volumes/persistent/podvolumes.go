package persistent

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// podVolume is the state of a pod's volume in this process.
type podVolume struct {
	namespace string // of the pod; empty: unknown
	folder    string // in the pod's folder; empty: it has no place of its own, like a hostPath
	wants     string // its unique name if it has to be attached
	progress  progress
	size      int64  // to which it was grown here, or cannot grow while in use, in bytes; 0: unknown
	group     string // the annotation of its PersistentVolume, as last read; see groups.go
	trouble   string // the last error of checking or publishing it again

	waits time.Time // since when it has waited to be attached; zero: it does not wait
	claim *v1.PersistentVolumeClaim
	pv    *v1.PersistentVolume // the volume and its claim, as read when the wait began; nil: to be read
}

// progress is the state of the work on a volume. The zero value means that this process has not worked on it: anything that
// exists was made by an earlier process, which may have ended at any point.
type progress int

const (
	begun progress = iota + 1
	done           // all succeeded
)

// lookUp returns the state of a pod's volume.
func (s *Storage) lookUp(uid types.UID, volume string) (v podVolume, known bool) {
	if s == nil {
		return v, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, known = s.pods[string(uid)][volume]
	return v, known
}

// change changes the state of a pod's volume, and reports whether it differs now.
func (s *Storage) change(uid types.UID, volume string, how func(*podVolume)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.pods[string(uid)]
	was, known := pod[volume]
	is := was
	if how(&is); known && is == was {
		return false
	}
	if pod == nil {
		pod = map[string]podVolume{}
		s.pods[string(uid)] = pod
	}
	pod[volume] = is
	s.touched = s.touched || !known || is.wants != was.wants || is.progress != was.progress
	return true
}

// lockPlace waits until no other volume of the pod with the same PersistentVolume is being mounted: several volumes of a pod may
// have one claim, and with it one place and one record.
func (s *Storage) lockPlace(ctx context.Context, place string) (unlock func(), err error) {
	for {
		s.mu.Lock()
		busy := s.placing[place]
		if busy == nil {
			break
		}
		s.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer s.mu.Unlock()
	done := make(chan struct{})
	s.placing[place] = done
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.placing, place)
		close(done)
	}, nil
}

// begin records the place of a pod's volume and returns its state. The progress is begun if nothing is mounted on the place, and
// done if another volume of the pod with the same claim is mounted there.
func (s *Storage) begin(p kinds.Folder, volume, folder string) podVolume {
	size, mounted := s.doneAt(p.Pod.UID, volume, folder)
	s.change(p.Pod.UID, volume, func(h *podVolume) {
		h.folder, h.namespace = folder, p.Pod.Namespace
		if mounted {
			h.progress, h.size = done, max(h.size, size)
		}
	})
	if !s.isMounted(p, volume) {
		s.change(p.Pod.UID, volume, func(h *podVolume) { h.progress, h.size = begun, 0 })
	}
	h, _ := s.lookUp(p.Pod.UID, volume)
	return h
}

// doneAt reports whether another volume of the pod has the place, with all work on it done, and the size to which it was grown.
func (s *Storage) doneAt(uid types.UID, volume, folder string) (size int64, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, v := range s.pods[string(uid)] {
		if name != volume && v.folder == folder && v.progress == done {
			return v.size, true
		}
	}
	return 0, false
}

// ownerOf returns the owner of a pod's volume, a PersistentVolume's name or the pod's. The namespace is unknown if this process
// mounted none of them.
func (s *Storage) ownerOf(uid, volume string) csi.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.pods[uid] {
		if v.namespace != "" {
			return csi.Owner{Namespace: v.namespace, ID: uid, Volume: volume}
		}
	}
	return csi.Owner{ID: uid, Volume: volume}
}

// Calls returns the calls of CSI drivers for the pod that are in progress.
func (s *Storage) Calls(uid string) []csi.Call {
	if s == nil {
		return nil
	}
	return s.Drivers.Calls(uid)
}

// setStager records the namespace of the pod that staged a volume; empty: the volume is unstaged.
func (s *Storage) setStager(key, namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stagers[key] = namespace; namespace == "" {
		delete(s.stagers, key)
	}
}

// stagerOf returns the owner of a staged volume. The namespace is unknown if this process did not stage the volume.
func (s *Storage) stagerOf(key, volume string) csi.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return csi.Owner{Namespace: s.stagers[key], ID: key, Volume: volume}
}

// setReady records whether a volume was staged successfully.
func (s *Storage) setReady(key string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ready, key)
	if s.touched = true; is {
		s.ready[key] = true
	}
}

func (s *Storage) isReady(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready[key]
}

// Publishes reports whether a driver has, or may have, volumes of the pod.
func (s *Storage) Publishes(uid string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.pods[uid] {
		if strings.HasPrefix(h.folder, kinds.VolumeFolder(csi.PluginName, "")+"/") ||
			strings.HasPrefix(h.folder, csi.DevicesFolder+"/") {
			return true
		}
	}
	return s.onDisk[uid]
}

// Has reports whether a pod has, or may have, volumes of drivers on this node.
func (s *Storage) Has(uid string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[uid] != nil || s.onDisk[uid]
}

// Undoing records that the volumes of a pod are being unmounted, and whether the disk has records of them.
func (s *Storage) Undoing(uid string, found bool) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.onDisk[uid] = s.onDisk[uid] || found
		for name, h := range s.pods[uid] {
			h.progress = begun
			s.pods[uid][name] = h
		}
	}
}

// Forget records that a pod has no volumes any more, and needs none.
func (s *Storage) Forget(uid string) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.touched = s.touched || s.pods[uid] != nil || s.onDisk[uid]
		delete(s.pods, uid)
		delete(s.onDisk, uid)
	}
}

// touch records that the volumes in use may have changed. With released, a pod's volume was unmounted.
func (s *Storage) touch(released bool) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.touched, s.freed = true, s.freed || released
		if released {
			s.releases++
		}
	}
}

// released returns a condition that is true once another volume of a pod has been unmounted.
func (s *Storage) released() (since func() bool) {
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.releases
	}
	now := count()
	return func() bool { return count() != now }
}

// TakeNews reports whether the volumes in use may have changed since the last call, and whether a volume was released.
func (s *Storage) TakeNews() (touched, released bool) {
	if s == nil {
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	touched, released = s.touched, s.freed
	s.touched, s.freed = false, false
	return touched, released
}
