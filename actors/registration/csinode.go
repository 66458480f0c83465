package registration

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// annotationNodeIDs holds the CSI drivers' IDs of the node, by driver.
const annotationNodeIDs = "csi.volume.kubernetes.io/nodeid"

// migrated lists the in-tree plugins that CSI drivers replace on this node. The attach/detach controller reads it.
const migrated = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder," +
	"kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"

// csiState is the state of the CSINode, the object from which schedulers and provisioners learn the node's drivers.
type csiState struct {
	observed messages.CSIDriversObserved
	known    bool      // observed is complete
	node     types.UID // the owner at the last write
	written  messages.CSIDriversObserved
	at       time.Time // of the last write
	writing  bool
	failures int
	retry    supervisors.Timer
	failed   string
}

type (
	csiWriteResult struct {
		observed messages.CSIDriversObserved
		node     types.UID
		err      error
	}
	csiRetryDue struct{}
)

// csiCheck is the period after which an unchanged CSINode is compared again: others may have changed it.
const csiCheck = 5 * time.Minute

func (a *actor) onDrivers(ctx supervisors.Context, m messages.CSIDriversObserved) {
	a.csi.observed, a.csi.known, a.state.facts.drivers = m, true, m
	a.act(ctx)
	a.writeCSINode(ctx)
}

// writeCSINode writes the node's drivers to the CSINode, one write at a time.
func (a *actor) writeCSINode(ctx supervisors.Context) {
	c, node := &a.csi, a.state.node
	if !c.known || c.writing || node == nil || c.retry != nil {
		return
	}
	if c.node == node.UID && equality.Semantic.DeepEqual(c.written, c.observed) && ctx.Now().Sub(c.at) < csiCheck {
		return
	}
	c.writing = true
	client, observed := a.opts.Client.StorageV1().CSINodes(), c.observed
	ctx.Do(supervisors.Work{Name: "WriteCSINode", Timeout: writeTimeout, Run: func(ctx context.Context) any {
		was, err := client.Get(ctx, node.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = client.Create(ctx, csiNode(nil, node, observed), metav1.CreateOptions{})
		case err == nil:
			now := csiNode(was, node, observed)
			if without := withoutChanged(was, now); without != nil {
				if was, err = client.Update(ctx, without, metav1.UpdateOptions{}); err != nil {
					break
				}
				now.ResourceVersion = was.ResourceVersion
			}
			if !equality.Semantic.DeepEqual(was, now) {
				_, err = client.Update(ctx, now, metav1.UpdateOptions{})
			}
		}
		return csiWriteResult{observed, node.UID, err}
	}})
}

func (a *actor) onCSIWrote(ctx supervisors.Context, m csiWriteResult) {
	c := &a.csi
	c.writing = false
	if m.err == nil {
		c.node, c.written, c.at, c.failures, c.failed = m.node, m.observed, ctx.Now(), 0, ""
		a.writeCSINode(ctx) // the drivers may have changed meanwhile
		return
	}
	c.failures++
	why := "the CSINode " + a.opts.Desired.Name + " cannot be written: " + apiclient.Explain(m.err, a.opts.Desired.Name)
	if why != c.failed && c.failures > 1 { // a conflict heals at the first retry
		ctx.Log().Warn("writing the CSINode failed; will retry", "error", why)
		c.failed = why
	}
	c.retry = ctx.After(retry.After(c.failures, 0), csiRetryDue{})
	a.publish()
}

// csiNode returns the CSINode with these drivers. It does not change was, which is nil without a CSINode. Drivers of an earlier
// agent stay until they register with this one or are gone.
func csiNode(was *storagev1.CSINode, node *v1.Node, observed messages.CSIDriversObserved) *storagev1.CSINode {
	out := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	if was != nil {
		out = was.DeepCopy()
	}
	out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, v1.MigratedPluginsAnnotationKey, migrated)
	drivers := map[string]storagev1.CSINodeDriver{}
	for _, d := range out.Spec.Drivers {
		if !slices.Contains(observed.Gone, d.Name) {
			drivers[d.Name] = d
		}
	}
	for _, d := range observed.Drivers {
		one := storagev1.CSINodeDriver{Name: d.Name, NodeID: d.NodeID, TopologyKeys: slices.Sorted(maps.Keys(d.Topology))}
		if d.MaxVolumes > 0 {
			count := int32(min(d.MaxVolumes, 1<<31-1)) // it is bounded
			one.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
		}
		drivers[d.Name] = one
	}
	byName := func(x, y storagev1.CSINodeDriver) int { return cmp.Compare(x.Name, y.Name) }
	out.Spec.Drivers = slices.SortedFunc(maps.Values(drivers), byName)
	return out
}

// withoutChanged returns the new CSINode without changed entries, or nil if no entry changed. It is written first: entries are
// immutable, and the API server accepts a changed one only as a new one.
func withoutChanged(was, now *storagev1.CSINode) *storagev1.CSINode {
	out := now.DeepCopy()
	out.Spec.Drivers = slices.DeleteFunc(out.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		i := slices.IndexFunc(was.Spec.Drivers, func(o storagev1.CSINodeDriver) bool { return o.Name == d.Name })
		return i >= 0 && (was.Spec.Drivers[i].NodeID != d.NodeID ||
			!slices.Equal(was.Spec.Drivers[i].TopologyKeys, d.TopologyKeys))
	})
	if len(out.Spec.Drivers) == len(now.Spec.Drivers) {
		return nil
	}
	return out
}

// withDrivers adds the CSI drivers' node IDs and topology to a Node, in place. Labels with other values stay.
func withDrivers(node *v1.Node, observed messages.CSIDriversObserved) *v1.Node {
	if len(observed.Drivers) == 0 && len(observed.Gone) == 0 {
		return node
	}
	ids := map[string]string{}
	_ = json.Unmarshal([]byte(node.Annotations[annotationNodeIDs]), &ids) // an annotation that is no map is replaced
	for _, name := range observed.Gone {
		delete(ids, name)
	}
	for _, d := range observed.Drivers {
		ids[d.Name] = d.NodeID
		for key, value := range d.Topology {
			if _, there := node.Labels[key]; !there {
				node.Labels[key] = value
			}
		}
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	delete(node.Annotations, annotationNodeIDs)
	if text, err := json.Marshal(ids); err == nil && len(ids) > 0 {
		node.Annotations[annotationNodeIDs] = string(text)
	}
	return node
}
