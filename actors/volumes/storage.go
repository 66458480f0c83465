package volumes

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/pluginwatch"
	"github.com/playlet-dev/playlet/messages"
)

// Storage is what persistent volumes need, and what is known of them, for as long as the process lives. Objects of the API server
// are read by the mount that needs them: a node may get claims, volumes and attachments of its pods, and neither list nor watch
// them. Safe for concurrent use.
type Storage struct {
	StorageOptions
	Drivers *csi.Drivers

	node atomic.Pointer[v1.Node] // as it was observed last; nil: not yet

	mu         sync.Mutex
	pods       map[string]map[string]held // volumes of pods, by UID and the pod's name for it
	onDisk     map[string]bool            // pods of which records lie on the disk
	attachable map[string]bool            // drivers whose volumes are attached, as far as known
	ready      map[string]bool            // volumes that this process staged, by stagedKey
	touched    bool                       // what is in use may have changed
	freed      bool                       // a pod's volume was taken away, and may have to be unstaged
	releases   int                        // volumes of pods that were taken away so far

	objects driverObjects

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// persistent is what the kinds of persistent volumes have in common.
type persistent struct {
	kinds.Bare
	s *Storage // nil without an API server
}

// Mounted looks where the volume was found to be when it was mounted.
func (k persistent) Mounted(p kinds.Folder, v *v1.Volume) bool { return k.s.placed(p, v.Name) }

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

// NewStorage begins to watch for drivers and their objects.
func NewStorage(o StorageOptions) *Storage {
	s := &Storage{
		StorageOptions: o, Drivers: csi.NewDrivers(), pods: map[string]map[string]held{}, onDisk: map[string]bool{},
		attachable: map[string]bool{}, ready: map[string]bool{}, touched: true,
	}
	s.objects = driverObjects{specs: map[string]storagev1.CSIDriverSpec{}, changed: s.Drivers.Nudge}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	w := pluginwatch.Watcher{Dir: filepath.Join(o.RootDir, "plugins_registry"), Log: o.Log, Retry: retry,
		Handlers: map[string]pluginwatch.Handler{registration.CSIPlugin: s.Drivers}}
	s.running.Go(func() { w.Run(ctx) })
	s.running.Go(func() { s.objects.watch(ctx, o.Client, o.Log) })
	return s
}

// Close ends the watches.
func (s *Storage) Close() {
	if s != nil {
		s.cancel()
		s.running.Wait()
	}
}

// csiFolder is where the kubelet keeps what is staged: <driver>/<hash of the handle>/globalmount.
func (s *Storage) csiFolder() string { return filepath.Join(s.RootDir, "plugins", csiName) }

// object is an API object as errors name it.
type object struct{ kind, name string }

func (o object) String() string { return o.kind + " " + o.name }

// absent is the cause of an absent object, by its kind; of others it is CauseObjectAbsent.
var absent = map[string]messages.CauseCode{
	"PersistentVolumeClaim": messages.CauseClaimPending, "PersistentVolume": messages.CauseClaimPending,
	"VolumeAttachment": messages.CauseNotAttached,
}

// fetch reads one object, for a pod where the API server allows it by its graph (AwaitGraph). Its absence is a waitError.
func fetch[T any](
	ctx context.Context, pod *v1.Pod, called object,
	read func(context.Context, string, metav1.GetOptions) (*T, error), name string,
) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	found, err := apiclient.AwaitGraph(ctx, pod, func(ctx context.Context) (*T, error) {
		return read(ctx, name, metav1.GetOptions{})
	})
	switch {
	case apierrors.IsNotFound(err):
		why := messages.Cause{Code: cmp.Or(absent[called.kind], messages.CauseObjectAbsent), Kind: called.kind, Name: called.name}
		return nil, waitError{error: why.Errorf("%s does not exist", called)}
	case err != nil:
		return nil, fmt.Errorf("%s cannot be read: %w", called, err)
	}
	return found, nil
}

// driverObject is the CSIDriver. Where there is none it is without a word, which stands for the kubelet's defaults.
func (s *Storage) driverObject(ctx context.Context, name string) (storagev1.CSIDriverSpec, error) {
	if spec, known := s.objects.spec(name); known {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.attachable[name] = attaches(spec)
		return spec, nil
	}
	found, err := fetch(ctx, nil, object{"CSIDriver", name}, s.Client.StorageV1().CSIDrivers().Get, name)
	if isWait(err) {
		found, err = &storagev1.CSIDriver{}, nil
	}
	if err != nil {
		return storagev1.CSIDriverSpec{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attachable[name] = attaches(found.Spec)
	return found.Spec, nil
}

// attaches says that the driver's volumes have to be attached.
func attaches(d storagev1.CSIDriverSpec) bool { return ptr.Deref(d.AttachRequired, true) }

// held is what is known of a pod's volume, in this process' life.
type held struct {
	folder   string // in the pod's folder; empty: it has no place of its own, as a hostPath
	wants    string // its unique name, where it is to be attached
	progress progress
	size     int64  // up to which it has been grown here, or cannot be while it is in use, in bytes; 0: not known
	trouble  string // why it cannot be looked at

	waits time.Time // when it began to wait to be attached; zero: it does not
	claim *v1.PersistentVolumeClaim
	pv    *v1.PersistentVolume // that and its claim, as read when the wait began; nil: to be read
}

// progress is how far a volume is. The zero value is of one of which this process has done nothing: what is there of it was made
// by an earlier one, which may have ended at any point.
type progress int

const (
	begun progress = iota + 1
	done           // all succeeded
)

// of is what is known of a pod's volume.
func (s *Storage) of(uid types.UID, volume string) (h held, known bool) {
	if s == nil {
		return h, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h, known = s.pods[string(uid)][volume]
	return h, known
}

// change changes what is known of a pod's volume, and says whether that is news.
func (s *Storage) change(uid types.UID, volume string, how func(*held)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.pods[string(uid)]
	was, known := pod[volume]
	is := was
	if how(&is); known && is == was {
		return false
	}
	if pod == nil {
		pod = map[string]held{}
		s.pods[string(uid)] = pod
	}
	pod[volume] = is
	s.touched = s.touched || !known || is.wants != was.wants || is.progress != was.progress
	return true
}

// begin notes where a pod's volume is to be, and says how far it is: it is begun where nothing is mounted there.
func (s *Storage) begin(p kinds.Folder, volume, folder string) held {
	s.change(p.Pod.UID, volume, func(h *held) { h.folder = folder })
	if !s.placed(p, volume) {
		s.change(p.Pod.UID, volume, func(h *held) { h.progress, h.size = begun, 0 })
	}
	h, _ := s.of(p.Pod.UID, volume)
	return h
}

// setReady notes whether a volume is staged with success; isReady says it.
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

// publishes says that a driver has, or may have, volumes of the pod.
func (s *Storage) publishes(uid string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.pods[uid] {
		if strings.HasPrefix(h.folder, kinds.VolumeFolder(csiName, "")+"/") {
			return true
		}
	}
	return s.onDisk[uid]
}

// has says whether a pod has, or may have, volumes of drivers on this node.
func (s *Storage) has(uid string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[uid] != nil || s.onDisk[uid]
}

// undoing notes that the volumes of a pod are being taken away, and whether records of them lie on the disk.
func (s *Storage) undoing(uid string, found bool) {
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

// forget notes that a pod has no volumes any more, and wants none.
func (s *Storage) forget(uid string) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.touched = s.touched || s.pods[uid] != nil || s.onDisk[uid]
		delete(s.pods, uid)
		delete(s.onDisk, uid)
	}
}

// touch notes that what is in use may have changed; released, that a pod's volume was taken away.
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

// released returns a condition that is true once a pod's volume has been taken away.
func (s *Storage) released() (since func() bool) {
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.releases
	}
	now := count()
	return func() bool { return count() != now }
}

// takeNews says whether what is in use may have changed since this was asked last, and whether a volume was released.
func (s *Storage) takeNews() (touched, released bool) {
	if s == nil {
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	touched, released = s.touched, s.freed
	s.touched, s.freed = false, false
	return touched, released
}
