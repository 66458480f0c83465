package persistent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// driverObjects is a watched copy of the cluster's CSIDrivers. Of the objects of persistent volumes a node may list only these.
// It is safe for concurrent use.
type driverObjects struct {
	changed func() // called after each change

	mu     sync.Mutex
	specs  map[string]storagev1.CSIDriverSpec
	listed bool
}

// spec returns the spec of a driver, or the zero value if there is no object of that name. known is false until they are
// listed.
func (d *driverObjects) spec(name string) (spec storagev1.CSIDriverSpec, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.specs[name], d.listed
}

// LimitPeriods returns the intervals at which drivers on this node have to be asked for their limit of volumes, by driver
// (nodeAllocatableUpdatePeriodSeconds, KEP-4876). Other drivers have a fixed limit.
func (s *Storage) LimitPeriods() map[string]time.Duration {
	out := map[string]time.Duration{}
	drivers, _, _ := s.Drivers.All()
	for _, d := range drivers {
		if spec, _ := s.objects.spec(d.Name); limitChanges(spec) {
			seconds := min(max(*spec.NodeAllocatableUpdatePeriodSeconds, leastPeriod), mostPeriod)
			out[d.Name] = time.Duration(seconds) * time.Second
		}
	}
	return out
}

// leastPeriod is the API's least interval, in seconds. The API has no longest one; mostPeriod is a year, more than an agent
// lives.
const leastPeriod, mostPeriod = 10, 365 * 24 * 3600

// limitChanges reports whether a driver's limit of volumes on a node changes while the driver is registered.
func limitChanges(spec storagev1.CSIDriverSpec) bool {
	return spec.NodeAllocatableUpdatePeriodSeconds != nil && *spec.NodeAllocatableUpdatePeriodSeconds > 0
}

// watch runs until ctx ends. While nothing is listed, each mount reads the object that it needs.
func (d *driverObjects) watch(ctx context.Context, client kubernetes.Interface, log *slog.Logger) {
	drivers := client.StorageV1().CSIDrivers()
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return drivers.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return drivers.Watch(ctx, o)
		},
	}, client)
	for ctx.Err() == nil {
		_ = guard.Call(log, "the watch of CSIDrivers", func() error { // it logs a panic
			cache.NewReflectorWithOptions(source, &storagev1.CSIDriver{}, d.store(),
				cache.ReflectorOptions{Name: "CSIDrivers"}).RunWithContext(apiclient.Quiet(ctx))
			return nil
		})
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

func (d *driverObjects) store() apiclient.Store {
	change := func(how func(specs map[string]storagev1.CSIDriverSpec)) {
		defer d.changed()
		d.mu.Lock()
		defer d.mu.Unlock()
		how(d.specs)
	}
	put := func(specs map[string]storagev1.CSIDriverSpec, object any) {
		driver := object.(*storagev1.CSIDriver)
		specs[driver.Name] = driver.Spec
	}
	return apiclient.Store{
		Put: func(object any) { change(func(specs map[string]storagev1.CSIDriverSpec) { put(specs, object) }) },
		Drop: func(object any) {
			change(func(specs map[string]storagev1.CSIDriverSpec) { delete(specs, object.(*storagev1.CSIDriver).Name) })
		},
		All: func(objects []any) {
			change(func(specs map[string]storagev1.CSIDriverSpec) {
				clear(specs)
				for _, object := range objects {
					put(specs, object)
				}
				d.listed = true
			})
		},
	}
}
