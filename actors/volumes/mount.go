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
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/persistent"
	"github.com/playlet-dev/playlet/messages"
)

// volumesAtATime bounds how many local volumes of one pod are mounted side by side.
const volumesAtATime = 8

// volumeOutcome is what came of mounting one volume; one without a name is of the pod's folder, which could not be made.
type volumeOutcome struct {
	name   string
	plugin string // as metrics name it
	of     *v1.Volume
	path   string
	err    error
	renew  time.Time // when it is to be mounted again; zero: when something changes
	events []messages.RecordEvent
}

func (o *volumeOutcome) renewAt(at time.Time) {
	if o.renew.IsZero() || at.Before(o.renew) {
		o.renew = at
	}
}

// mountPod mounts the volumes that are named, all where none is, side by side. Each is an operation of its own, which goes on
// when one of them hangs and the others are done. Volumes that may hang take no place of others: their drivers and file systems
// have limits of their own.
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
		if persistent.Handles(v) || (kinds.HostPath{}).Checks(v) {
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

// inFolder does something in the pod's folder, which is opened by OpenPod or MakePod.
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

// mountVolume mounts one volume as the one operation on it, or joins who does; what is done for an older desired state is
// awaited.
func (d disk) mountVolume(ctx context.Context, uid string, pod *v1.Pod, v *v1.Volume) volumeOutcome {
	fits := func(o volumeOutcome) bool { return o.of == v }
	key := operationsPrefix + volumeKey(uid, v.Name)
	out, err := reconcile.Join(ctx, d.ops, key, kinds.OperationTimeout, fits, func(ctx context.Context) volumeOutcome {
		return d.mountOne(ctx, uid, pod, v)
	})
	change, changes := d.ops.Progress(key).(*kinds.GroupChange)
	switch {
	case err != nil && changes:
		err = kinds.WaitError{Err: changeError{change.Folder, change.Files()}}
	case errors.Is(err, context.DeadlineExceeded):
		err = messages.Cause{Code: messages.CauseMounting}.Errorf("it is still being mounted after %s; that goes on",
			d.timeouts.volume)
	}
	if err != nil {
		return volumeOutcome{name: v.Name, err: err}
	}
	return out
}

// changeError is of a volume that is still being given to its pod's fsGroup.
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
		folder.SetPlugin = func(plugin string) { out.plugin = plugin }
		out.path, err = p.Mount(ctx, folder, v)
		return err
	})
	if !kinds.IsNormalWait(out.err) {
		metrics.Stored(out.plugin, "volume_mount", began, out.err)
	}
	return out
}

// settle waits for volumes of the pod that are still being mounted, by whoever asked; not for long, as what hangs may hang
// for ever.
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
