package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/nfs"
	"github.com/playlet-dev/playlet/messages"
)

// volumesAtATime limits the concurrent mounts of local volumes of one pod.
const volumesAtATime = 8

// volumeOutcome is the result of mounting one volume. Without a name it is the failure to make the pod's folder.
type volumeOutcome struct {
	name   string
	plugin string // as metrics name it
	device bool   // it is a block device
	of     *v1.Volume
	path   string
	mounts bool // something is mounted at the path
	err    error
	group  *int64    // a supplemental group of the containers
	renew  time.Time // when to mount it again; zero: after a change
	events []messages.RecordEvent
}

func (o *volumeOutcome) renewAt(at time.Time) {
	if o.renew.IsZero() || at.Before(o.renew) {
		o.renew = at
	}
}

// mountPod mounts the named volumes, or all if none is named, concurrently. Each mount is an operation of its own, which
// continues when it hangs and the others are done. Volumes that may hang do not count against volumesAtATime: their drivers and
// file systems have their own limits.
func (d disk) mountPod(ctx context.Context, uid string, pod *v1.Pod, only ...string) mountOutcome {
	if err := d.inFolder(kinds.MakePod, uid, pod, func(kinds.Folder) error { return nil }); err != nil {
		return mountOutcome{only, []volumeOutcome{{err: err}}}
	}
	volumes := slices.DeleteFunc(podspec.UsedVolumes(pod), func(v *v1.Volume) bool {
		return len(only) > 0 && !slices.Contains(only, v.Name)
	})
	ctx, cancel := context.WithTimeout(ctx, d.timeouts.volume)
	defer cancel()
	results := make([]volumeOutcome, len(volumes))
	slots := make(chan struct{}, volumesAtATime)
	var wg sync.WaitGroup
	for i, v := range volumes {
		if mayHang(v) {
			wg.Go(func() { results[i] = d.mountVolume(ctx, uid, pod, v) })
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			results[i] = volumeOutcome{name: v.Name, err: errors.New("timed out waiting for other volumes of the pod")}
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			results[i] = d.mountVolume(ctx, uid, pod, v)
		})
	}
	wg.Wait()
	return mountOutcome{only, results}
}

// inFolder opens the pod's folder with OpenPod or MakePod, and calls do with it.
func (d disk) inFolder(
	open func(*safepath.Root, string, *v1.Pod) (kinds.Folder, error), uid string, pod *v1.Pod, do func(kinds.Folder) error,
) error {
	pods, err := kinds.OpenPods(d.rootDir)
	if err != nil {
		return err
	}
	defer d.close(pods)
	folder, err := open(pods, uid, pod)
	if err != nil {
		return err
	}
	defer d.close(folder.Root)
	folder.Node = d.node
	return do(folder)
}

// mountVolume mounts one volume in the only operation on it. It joins an operation in progress for the same desired state, and
// waits for the end of one for an older state.
func (d disk) mountVolume(ctx context.Context, uid string, pod *v1.Pod, v *v1.Volume) volumeOutcome {
	fits := func(o volumeOutcome) bool { return o.of == v }
	key := operationsPrefix + volumeKey(uid, v.Name)
	out, err := reconcile.Join(ctx, d.ops, key, kinds.OperationTimeout, fits, func(ctx context.Context) volumeOutcome {
		return d.mountOne(ctx, uid, pod, v)
	})
	progress := d.ops.Progress(key)
	change, changes := progress.(*kinds.GroupChange)
	wait, waits := progress.(nfs.Wait)
	call, calls := d.callFor(uid, v.Name)
	switch {
	case err != nil && changes:
		err = kinds.WaitError{Err: changeError{change.Folder, change.Files()}}
	case errors.Is(err, context.DeadlineExceeded) && waits:
		err = wait.Overdue(d.timeouts.volume)
	case errors.Is(err, context.DeadlineExceeded) && calls:
		err = call.Cause().Errorf("it is still being mounted after %s: %w", d.timeouts.volume, call)
	case errors.Is(err, context.DeadlineExceeded):
		err = messages.Cause{Code: messages.CauseMounting}.Errorf("it is still being mounted after %s; that goes on",
			d.timeouts.volume)
	}
	if err != nil {
		return volumeOutcome{name: v.Name, err: err}
	}
	return out
}

// callFor returns the call of a CSI driver for a pod's volume that is in progress, and whether there is one.
func (d disk) callFor(uid, volume string) (csi.Call, bool) {
	all := d.storage.Calls(uid)
	if i := slices.IndexFunc(all, func(c csi.Call) bool { return c.Volume == volume }); i >= 0 {
		return all[i], true
	}
	return csi.Call{}, false
}

// changeError reports that the volume's files are still being given to the pod's fsGroup.
type changeError struct {
	folder string
	files  int64
}

// Error is the message of the kubelet's Event.
func (e changeError) Error() string {
	return fmt.Sprintf("Setting volume ownership for %s, processed %d files", e.folder, e.files)
}

func (d disk) mountOne(ctx context.Context, uid string, pod *v1.Pod, v *v1.Volume) volumeOutcome {
	out := volumeOutcome{name: v.Name, of: v}
	p, err := kinds.PluginFor(d.plugins, v)
	if err != nil {
		out.err = err
		return out
	}
	out.plugin = p.Name()
	began := time.Now()
	out.err = d.inFolder(kinds.MakePod, uid, pod, func(folder kinds.Folder) error {
		folder.RenewAt = out.renewAt
		folder.Record = func(events ...messages.RecordEvent) { out.events = append(out.events, events...) }
		folder.SetGroup = func(group int64) { out.group = &group }
		folder.SetPlugin = func(plugin string, device bool) { out.plugin, out.device = plugin, device }
		if out.path, err = p.Mount(ctx, folder, v); err != nil {
			return err
		}
		out.mounts, err = folder.HasMount(out.path)
		return err
	})
	if !kinds.IsNormalWait(out.err) {
		operation := "volume_mount"
		if out.device {
			operation = "map_volume"
		}
		metrics.Stored(out.plugin, operation, began, out.err)
	}
	return out
}

// settle waits for pending mounts of the pod's volumes, by any operation. The wait is short, because a hung mount may never
// end.
func (d disk) settle(ctx context.Context, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeouts.settle)
	defer cancel()
	if err := d.ops.Settle(ctx, operationsPrefix+volumeKey(uid, "")); err != nil {
		return fmt.Errorf("a volume is still being mounted, so nothing is removed: %w", err)
	}
	return nil
}

// volumeKey is the key of operations on one volume.
func volumeKey(uid, volume string) string { return uid + "/" + volume }
