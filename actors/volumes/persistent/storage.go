package persistent

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/iscsi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// Storage has the drivers and the state of persistent volumes. It lives as long as the process. The mount that needs an object
// reads it from the API server: a node may get the claims, volumes and attachments of its pods, but neither list nor watch
// them. Storage is safe for concurrent use.
type Storage struct {
	Options
	Drivers *csi.Drivers

	node atomic.Pointer[v1.Node] // as last observed; nil: not yet

	mu         sync.Mutex
	pods       map[string]map[string]podVolume // volumes of pods, by UID and the pod's name for the volume
	onDisk     map[string]bool                 // pods with records on the disk
	attachable map[string]bool                 // whether a driver's volumes are attached, by driver, if known
	ready      map[string]bool                 // volumes that this process staged, by stagedKey
	stagers    map[string]string               // namespaces of the pods that staged volumes, by stagedKey
	touched    bool                            // the volumes in use may have changed
	freed      bool                            // a pod's volume was unmounted, and may have to be unstaged
	releases   int                             // number of volumes of pods unmounted so far
	placing    map[string]chan struct{}        // mounts in progress by UID and PersistentVolume; closed at their end
	binding    map[string]int                  // file systems that pods bind at the moment, by the key of hold

	objects driverObjects

	recording sync.Mutex // held while the record of a block volume is written

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// kind has the common methods of the kinds of persistent volumes.
type kind struct {
	kinds.BareKind
	s *Storage // nil without an API server
}

// Mounted implements kinds.Plugin. It checks the place where the volume was mounted last.
func (k kind) Mounted(p kinds.Folder, v *v1.Volume) bool { return k.s.isMounted(p, v.Name) }

// Options are the parameters of New.
type Options struct {
	Client     kubernetes.Interface
	NodeName   string
	RootDir    string
	Operations reconcile.Operations
	ISCSI      iscsi.Initiator
	Log        *slog.Logger
}

// New returns a Storage. It begins to watch for the objects of drivers. Drivers is a handler of the watcher of plugins, which the
// caller runs.
func New(o Options) *Storage {
	s := &Storage{
		Options: o, Drivers: csi.NewDrivers(), pods: map[string]map[string]podVolume{}, onDisk: map[string]bool{},
		attachable: map[string]bool{}, ready: map[string]bool{}, stagers: map[string]string{}, touched: true,
		placing: map[string]chan struct{}{}, binding: map[string]int{},
	}
	s.objects = driverObjects{specs: map[string]storagev1.CSIDriverSpec{}, changed: s.Drivers.Nudge}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Go(func() { s.objects.watch(ctx, o.Client, o.Log) })
	return s
}

// Plugins returns the kinds of persistent volumes. Without an API server (nil) they mount nothing, and unmount volumes that
// they find.
func Plugins(s *Storage) []kinds.Plugin {
	k := kind{s: s}
	return []kinds.Plugin{claim{k}, csiVolume{k}, local{k}, iscsiVolume{k}}
}

// Handles reports whether a volume is persistent, of a CSI driver or of an iSCSI target.
func Handles(v *v1.Volume) bool {
	return claim{}.Handles(v) || csiVolume{}.Handles(v) || iscsiVolume{}.Handles(v)
}

// Observe stores the latest Node.
func (s *Storage) Observe(node *v1.Node) { s.node.Store(node) }

// Close ends the watches.
func (s *Storage) Close() {
	if s != nil {
		s.cancel()
		s.running.Wait()
	}
}

// csiFolder returns the kubelet's folder of staged volumes: <driver>/<hash of the handle>/globalmount.
func (s *Storage) csiFolder() string { return filepath.Join(s.RootDir, "plugins", csi.PluginName) }
