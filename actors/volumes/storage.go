package volumes

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
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
	touched    bool                         // what is in use may have changed

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
		places: map[string]map[string]string{}, attachable: map[string]bool{}, touched: true,
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	w := pluginwatch.Watcher{Dir: filepath.Join(o.RootDir, "plugins_registry"), Log: o.Log, Handlers: map[string]pluginwatch.Handler{
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
	s.places[uid][volume] = folder
	s.touched = true
}

func (s *Storage) placeOf(uid, volume string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places[uid][volume]
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

// takeTouched says whether what is in use may have changed since this was asked last.
func (s *Storage) takeTouched() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.touched
	s.touched = false
	return was
}

// uniqueName is a volume's name on the Node.
func uniqueName(r csi.Record) string { return csiName + "/" + r.Driver + "^" + r.Handle }

// inUse lists the attachable volumes that some pod wants or that may be on this node still: none of them may be detached. A driver
// of which it is not known whether its volumes are attached counts as one of which they are.
func (s *Storage) inUse(ctx context.Context) ([]v1.UniqueVolumeName, error) {
	published, err := s.published()
	if err != nil {
		return nil, err
	}
	staged, err := s.staged()
	if err != nil {
		return nil, err
	}
	names, pods := map[string]bool{}, map[string]bool{}
	for _, p := range published {
		pods[p.uid] = true
		staged[p.uid+"/"+p.folder] = p.Record
	}
	for _, r := range staged {
		if r.Lifecycle == string(storagev1.VolumeLifecycleEphemeral) || names[uniqueName(r)] {
			continue
		}
		s.mu.Lock()
		attached, known := s.attachable[r.Driver]
		s.mu.Unlock()
		if !known {
			spec, err := s.driverObject(ctx, r.Driver)
			attached = err != nil || spec.AttachRequired == nil || *spec.AttachRequired
		}
		if attached {
			names[uniqueName(r)] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onDisk = pods
	for name := range s.wanted {
		names[name] = true
	}
	out := []v1.UniqueVolumeName{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, v1.UniqueVolumeName(name))
	}
	return out, nil
}

// publishedVolume is a pod's volume of a driver, as it lies on the disk.
type publishedVolume struct {
	csi.Record
	uid, folder string // the folder is in the pod's
}

// published lists the records of all pods. One that cannot be read is an error: it may be of any volume.
func (s *Storage) published() (out []publishedVolume, err error) {
	pods, err := openPods(s.RootDir)
	if err != nil {
		return nil, err
	}
	defer pods.Close() //nolint:errcheck // read only
	uids, err := pods.Names(".")
	if err != nil {
		return nil, err
	}
	for _, uid := range uids {
		kind := filepath.Join(uid, volumesFolder, escaped(csiName))
		names, err := namesIn(pods, kind)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			r, err := csi.Read(pods, filepath.Join(kind, name))
			switch {
			case err == nil:
				out = append(out, publishedVolume{r, uid, filepath.Join(volumesFolder, escaped(csiName), name)})
			case !isAbsent(err):
				return nil, err
			}
		}
	}
	return out, nil
}

// staged lists the records of what is staged, by <driver>/<hash>.
func (s *Storage) staged() (map[string]csi.Record, error) {
	out := map[string]csi.Record{}
	root, err := safepath.OpenRoot(s.csiFolder())
	if isAbsent(err) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // read only
	drivers, err := namesIn(root, ".")
	if err != nil {
		return nil, err
	}
	for _, driver := range drivers {
		hashes, err := namesIn(root, driver)
		if err != nil {
			return nil, err
		}
		for _, hash := range hashes {
			key := filepath.Join(driver, hash)
			r, err := csi.Read(root, key)
			switch {
			case err == nil:
				out[key] = r
			case !isAbsent(err):
				return nil, err
			}
		}
	}
	return out, nil
}

// namesIn lists a folder; what is none, or not there, has nothing in it.
func namesIn(root *safepath.Root, name string) ([]string, error) {
	info, err := root.Lstat(name)
	if isAbsent(err) || err == nil && !info.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := root.Names(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}
