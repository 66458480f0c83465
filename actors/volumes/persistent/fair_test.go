package persistent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

// boundIn returns a claim of a namespace and its volume of the driver. The handle is <namespace>-<name>.
func boundIn(namespace, name string) []runtime.Object {
	objects := bound(namespace+"-"+name, csiSource(namespace+"-"+name))
	claim := objects[0].(*v1.PersistentVolumeClaim)
	claim.Namespace, claim.Name = namespace, name
	return objects
}

// A namespace with many volumes that hang in a driver, at their start or at their end, does not delay a volume of another
// namespace.
func TestHungVolumes(t *testing.T) {
	const many = 60
	for _, call := range []string{"Stage", "Publish", "Unpublish"} {
		t.Run(call, func(t *testing.T) {
			objects := []runtime.Object{attachRequired(false)}
			for i := range many {
				objects = append(objects, boundIn("greedy", fmt.Sprint("c", i))...)
			}
			for _, namespace := range []string{"other", "kube-system"} {
				objects = append(objects, boundIn(namespace, "c")...)
			}
			n := storageNode(t, objects...)
			hang := make(chan struct{})
			d := startDriver(t, n, &csitest.Driver{Can: []api.NodeServiceCapability_RPC_Type{csi.Stages}, Hang: hang,
				Hangs: func(at string) bool { return strings.HasPrefix(at, call+" greedy-") }})
			pods, err := kinds.OpenPods(n.RootDir)
			must(t, err)
			defer func() { must(t, pods.Close()) }()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // reached only by a delayed volume
			defer cancel()
			live := func(ctx context.Context, namespace, claim string) error {
				uid := namespace + "-" + claim
				pod := volumestest.APIPodWith(uid, claimVolume("data", claim))
				pod.Namespace = namespace
				folder, err := kinds.MakePod(pods, uid, pod)
				if err != nil {
					return err
				}
				defer func() { must(t, folder.Close()) }()
				folder.Node, folder.SetPlugin, folder.RenewAt = n.facts, func(string, bool) {}, func(time.Time) {}
				claims, volumes := persistent.Plugins(n.storage)[0], persistent.Plugins(n.storage)[1]
				if _, err := claims.Mount(ctx, folder, &pod.Spec.Volumes[0]); err != nil {
					return err
				}
				folder.Pod = nil // as at a pod's end
				return volumes.Unmount(ctx, folder, "pv-"+uid)
			}
			var ends sync.WaitGroup
			for i := range many {
				ends.Go(func() { _ = live(ctx, "greedy", fmt.Sprint("c", i)) })
			}
			hung := func() int { return strings.Count(strings.Join(d.Calls(), ","), call+" greedy-") }
			eventually(t, func() bool { return hung() >= 5 })
			for _, namespace := range []string{"other", "kube-system"} {
				if err := live(ctx, namespace, "c"); err != nil {
					t.Errorf("a volume of namespace %s beside those that hang: %v", namespace, err)
				}
			}
			close(hang)
			ends.Wait()
			if left, err := os.ReadDir(filepath.Join(n.RootDir, "pods")); err != nil || len(left) != many+2 {
				t.Errorf("%d folders of pods, %v, want %d", len(left), err, many+2)
			}
		})
	}
}
