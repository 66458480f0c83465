package volumes

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/pluginwatch"
)

// Storage is what persistent volumes need, and what is known of them, for as long as the process lives. Objects of the API server
// are read by the mount that needs them: a node may get claims, volumes and attachments of its pods, and neither list nor watch
// them. Safe for concurrent use.
type Storage struct {
	StorageOptions
	Drivers *csi.Drivers

	node atomic.Pointer[v1.Node] // as it was observed last; nil: not yet

	mu         sync.Mutex
	wanted     map[string]map[string]bool   // pods by the unique name of a volume that they want attached
	places     map[string]map[string]string // folders in the pod's folder by volume and pod
	onDisk     map[string]bool              // pods of which records lie on the disk
	attachable map[string]bool              // drivers whose volumes are attached, as far as known
	progress   map[string]progress          // of volumes of a pod, and of staged ones, in this process' life
	touched    bool                         // what is in use may have changed
	released   bool                         // a pod's volume was taken away, and may have to be unstaged

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// StorageOptions are what Storage needs.
type StorageOptions struct {
	Client     kubernetes.Interface
	NodeName   string
	RootDir    string
	Operations reconcile.Operations
	Log        *slog.Logger
}

// getTimeout bounds one read of the API server.
const getTimeout = 10 * time.Second

// NewStorage begins to watch for drivers.
func NewStorage(o StorageOptions) *Storage {
	s := &Storage{
		StorageOptions: o, Drivers: csi.NewDrivers(), wanted: map[string]map[string]bool{}, onDisk: map[string]bool{},
		places: map[string]map[string]string{}, attachable: map[string]bool{}, progress: map[string]progress{}, touched: true,
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	w := pluginwatch.Watcher{Dir: filepath.Join(o.RootDir, "plugins_registry"), Log: o.Log,
		Handlers: map[string]pluginwatch.Handler{
			registration.CSIPlugin: s.Drivers,
		}}
	s.running.Go(func() { w.Run(ctx) })
	return s
}

// Close ends the watch for drivers.
func (s *Storage) Close() {
	if s != nil {
		s.cancel()
		s.running.Wait()
	}
}

// csiFolder is where the kubelet keeps what is staged: <driver>/<hash of the handle>/globalmount.
func (s *Storage) csiFolder() string { return filepath.Join(s.RootDir, pluginsFolder, csiName) }

// get reads one object, and gives nil where there is none.
func get[T any](
	ctx context.Context, read func(context.Context, string, metav1.GetOptions) (*T, error), name string,
) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	object, err := read(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	return object, nil
}

// driverObject is the CSIDriver; its defaults where there is none, which are the kubelet's.
func (s *Storage) driverObject(ctx context.Context, name string) (storagev1.CSIDriverSpec, error) {
	object, err := get(ctx, s.Client.StorageV1().CSIDrivers().Get, name)
	if err != nil {
		return storagev1.CSIDriverSpec{}, err
	}
	spec := storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}}
	if object != nil {
		spec = object.Spec
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attachable[name] = spec.AttachRequired == nil || *spec.AttachRequired
	return spec, nil
}

// place notes where a pod's volume is.
func (s *Storage) place(uid, volume, folder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places[uid] == nil {
		s.places[uid] = map[string]string{}
	}
	if was, known := s.places[uid][volume]; !known || was != folder {
		s.places[uid][volume], s.touched = folder, true
	}
}

func (s *Storage) placeOf(uid, volume string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places[uid][volume]
}

// progress is how far a volume is. The zero value is of one of which this process has done nothing: what is there of it was made
// by an earlier one, which may have ended at any point.
type progress int

const (
	begun progress = iota + 1
	done           // all succeeded
)

func (s *Storage) note(p progress, of, folder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := filepath.Join(of, folder); s.progress[key] != p {
		s.progress[key], s.touched = p, true
	}
}

func (s *Storage) is(p progress, of, folder string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress[filepath.Join(of, folder)] == p
}

// unstaged notes that nothing is left of a staged volume.
func (s *Storage) unstaged(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.progress, stagedPrefix+key)
}

// publishes says that a driver has, or may have, volumes of the pod.
func (s *Storage) publishes(uid string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.onDisk[uid] {
		return true
	}
	for _, folder := range s.places[uid] {
		if strings.HasPrefix(folder, csiFolder("")+"/") {
			return true
		}
	}
	return false
}

// foundPublished notes that records of a pod lie on the disk.
func (s *Storage) foundPublished(uid string) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.onDisk[uid] = true
	}
}

// has says whether a pod has, or may have, volumes of drivers on this node.
func (s *Storage) has(uid string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places[uid] != nil || s.onDisk[uid]
}

// want notes that a pod wants a volume attached.
func (s *Storage) want(uid, unique string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted[unique] == nil {
		s.wanted[unique] = map[string]bool{}
	}
	s.touched = s.touched || !s.wanted[unique][uid]
	s.wanted[unique][uid] = true
}

// forget notes that a pod has no volumes any more, and wants none.
func (s *Storage) forget(uid string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = s.touched || s.places[uid] != nil || s.onDisk[uid]
	delete(s.places, uid)
	delete(s.onDisk, uid)
	maps.DeleteFunc(s.progress, func(key string, _ progress) bool { return strings.HasPrefix(key, uid+"/") })
	for unique, pods := range s.wanted {
		if pods[uid] {
			s.touched = true
			if delete(pods, uid); len(pods) == 0 {
				delete(s.wanted, unique)
			}
		}
	}
}

func (s *Storage) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched = true
}

func (s *Storage) release() {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.touched, s.released = true, true
	}
}

// takeNews says whether what is in use may have changed since this was asked last, and whether a volume was released.
func (s *Storage) takeNews() (touched, released bool) {
	if s == nil {
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	touched, released = s.touched, s.released
	s.touched, s.released = false, false
	return touched, released
}
