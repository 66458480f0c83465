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
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/pluginwatch"
)

// Storage is what persistent volumes need, and what is known of them, for as long as the process lives. Objects of the API server
// are read by the mount that needs them: a node may get claims, volumes and attachments of its pods, and neither list nor watch
// them. Safe for concurrent use.
type Storage struct {
	Options
	Drivers *csi.Drivers

	node atomic.Pointer[v1.Node] // as it was observed last; nil: not yet

	mu         sync.Mutex
	pods       map[string]map[string]podVolume // volumes of pods, by UID and the pod's name for it
	onDisk     map[string]bool                 // pods of which records lie on the disk
	attachable map[string]bool                 // drivers whose volumes are attached, as far as known
	ready      map[string]bool                 // volumes that this process staged, by stagedKey
	stagers    map[string]string               // namespaces of pods that had volumes staged, by stagedKey
	touched    bool                            // what is in use may have changed
	freed      bool                            // a pod's volume was taken away, and may have to be unstaged
	releases   int                             // volumes of pods that were taken away so far

	objects driverObjects

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// kind has the common methods of the kinds of persistent volumes.
type kind struct {
	kinds.Bare
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
	Log        *slog.Logger
}

// New begins to watch for drivers and their objects.
func New(o Options) *Storage {
	s := &Storage{
		Options: o, Drivers: csi.NewDrivers(), pods: map[string]map[string]podVolume{}, onDisk: map[string]bool{},
		attachable: map[string]bool{}, ready: map[string]bool{}, stagers: map[string]string{}, touched: true,
	}
	s.objects = driverObjects{specs: map[string]storagev1.CSIDriverSpec{}, changed: s.Drivers.Nudge}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	w := pluginwatch.Watcher{Dir: filepath.Join(o.RootDir, "plugins_registry"), Log: o.Log, Retry: kinds.Retry,
		Handlers: map[string]pluginwatch.Handler{registration.CSIPlugin: s.Drivers}}
	s.running.Go(func() { w.Run(ctx) })
	s.running.Go(func() { s.objects.watch(ctx, o.Client, o.Log) })
	return s
}

// Plugins returns the kinds of persistent volumes. Without an API server (nil) they mount nothing, and unmount what is found.
func Plugins(s *Storage) []kinds.Plugin {
	k := kind{s: s}
	return []kinds.Plugin{claim{k}, csiVolume{k}, local{k}}
}

// Handles reports whether a volume is persistent, or of a CSI driver.
func Handles(v *v1.Volume) bool { return claim{}.Handles(v) || csiVolume{}.Handles(v) }

// Observe stores the Node as it was observed last.
func (s *Storage) Observe(node *v1.Node) { s.node.Store(node) }

// Close ends the watches.
func (s *Storage) Close() {
	if s != nil {
		s.cancel()
		s.running.Wait()
	}
}

// csiFolder is where the kubelet keeps what is staged: <driver>/<hash of the handle>/globalmount.
func (s *Storage) csiFolder() string { return filepath.Join(s.RootDir, "plugins", csi.PluginName) }
