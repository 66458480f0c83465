package volumes

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
)

// csiVolume is a volume of a CSI driver: the pod's own [inline], or what its claim is bound to. The driver mounts it. Folders and
// records are the kubelet's.
type csiVolume struct{}

const csiName = "kubernetes.io/csi"

func (csiVolume) name() string { return csiName }

func (csiVolume) handles(v *v1.Volume) bool { return v.CSI != nil }

func (csiVolume) mount(ctx context.Context, p podFolder, v *v1.Volume) (string, error) {
	if p.node.Storage == nil || !objectset.OfAPIServer(p.pod) {
		return "", permanent("CSI drivers need an API server")
	}
	if err := safepath.CheckElement(v.Name); err != nil {
		return "", permanentError{err}
	}
	path, err := publish(ctx, p, v.Name, volumeSource{inline: v.CSI, readOnly: isTrue(v.CSI.ReadOnly)})
	return orAsItIs(p, v.Name, path, err)
}

func (csiVolume) mounted(p podFolder, v *v1.Volume) bool { return placed(p, v.Name) }

func (csiVolume) inMemory(podFolder, string) bool { return false }

func csiFolder(volume string) string { return filepath.Join(volumesFolder, escaped(csiName), volume) }

// mountsAt implements mounter.
func (csiVolume) mountsAt(volume string) string {
	return filepath.Join(csiFolder(volume), csi.MountFolder)
}

// orAsItIs has a volume stay as it is that is mounted and cannot be looked at, or not be told of again, now.
func orAsItIs(p podFolder, volume, path string, err error) (string, error) {
	folder := p.node.Storage.placeOf(string(p.pod.UID), volume)
	if err == nil || folder == "" || !placed(p, volume) {
		return path, err
	}
	p.node.log.Warn("a mounted volume cannot be looked at again; it stays as it is", "pod", p.pod.UID, "volume", volume, "error", err)
	p.work.renewAt(time.Now().Add(renewRetry))
	return filepath.Join(p.Path(), folder), nil
}

// volumeSource is what a driver is to give to a pod: a PersistentVolume, or the pod's own volume.
type volumeSource struct {
	pv       *v1.PersistentVolume
	inline   *v1.CSIVolumeSource
	readOnly bool
}

// job is one volume that is published, with all that is known of it.
type job struct {
	volumeSource
	*Storage
	p      podFolder
	record csi.Record
	spec   storagev1.CSIDriverSpec
	driver *csi.Driver
	volume csi.Volume
	stage  map[string]string // secrets for staging
}

// republishEvery is how often a driver that asks for it is told anew of a volume that is mounted (requiresRepublish).
const republishEvery = time.Minute

// publish has the driver mount the volume, staged before where the driver stages. One that is mounted stays as it is, unless the
// driver wants to hear of it again.
func publish(ctx context.Context, p podFolder, volume string, source volumeSource) (string, error) {
	j := &job{volumeSource: source, Storage: p.node.Storage, p: p}
	j.describe(volume)
	if err := safepath.CheckElement(j.record.Driver); err != nil {
		return "", permanentError{err}
	}
	folder := csiFolder(j.record.Volume)
	target := filepath.Join(folder, csi.MountFolder)
	j.volume.Target = filepath.Join(p.Path(), target)
	var err error
	if j.spec, err = j.driverObject(ctx, j.record.Driver); err != nil {
		return "", fmt.Errorf("CSIDriver %s cannot be read: %w", j.record.Driver, err)
	}
	j.place(string(p.pod.UID), volume, target)
	there, again := placed(p, volume), isTrue(j.spec.RequiresRepublish)
	if again {
		p.work.renewAt(time.Now().Add(republishEvery))
	} else if there {
		return j.volume.Target, nil
	}
	if err := j.gather(ctx); err != nil {
		return "", err
	}
	if !there {
		if err := p.MkdirAll(folder, folderMode); err != nil {
			return "", err
		}
		if err := j.claimAndStage(ctx, folder); err != nil {
			return "", err
		}
	}
	if err := j.driver.Publish(ctx, j.volume); err != nil {
		return "", err
	}
	if j.changesOwner() && !there {
		return j.volume.Target, ownVolume(ctx, p, target)
	}
	return j.volume.Target, nil
}

// describe fills in what the source says.
func (j *job) describe(volume string) {
	j.record.Node = j.NodeName
	j.volume.ReadOnly, j.volume.AccessMode, j.volume.Attributes = j.readOnly, v1.ReadWriteOnce, map[string]string{}
	if in := j.inline; in != nil {
		hash := sha256.Sum256([]byte(string(j.p.pod.UID) + volume))
		j.record.Volume, j.record.Driver, j.record.Handle = volume, in.Driver, fmt.Sprintf("csi-%x", hash)
		j.record.Lifecycle = string(storagev1.VolumeLifecycleEphemeral)
		if in.FSType != nil {
			j.volume.FSType = *in.FSType
		}
		maps.Copy(j.volume.Attributes, in.VolumeAttributes)
	} else {
		source := j.pv.Spec.CSI
		j.record.Volume, j.record.Driver, j.record.Handle = j.pv.Name, source.Driver, source.VolumeHandle
		j.record.Lifecycle = string(storagev1.VolumeLifecyclePersistent)
		j.volume.FSType, j.volume.Options = source.FSType, j.pv.Spec.MountOptions
		if len(j.pv.Spec.AccessModes) > 0 {
			j.volume.AccessMode = j.pv.Spec.AccessModes[0]
		}
		maps.Copy(j.volume.Attributes, source.VolumeAttributes)
	}
	j.record.Attached = attachmentName(j.record.Handle, j.record.Driver, j.NodeName)
	j.volume.Handle, j.volume.Group = j.record.Handle, fsGroupOf(j.p.pod)
}

// gather gets what is needed of others: the driver, the attachment, secrets and tokens.
func (j *job) gather(ctx context.Context) (err error) {
	mode := storagev1.VolumeLifecycleMode(j.record.Lifecycle)
	modes := j.spec.VolumeLifecycleModes
	if len(modes) == 0 {
		modes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent} // the API's default
	}
	if !slices.Contains(modes, mode) {
		return fmt.Errorf("CSI driver %s has no volumes of the mode %s (volumeLifecycleModes of its CSIDriver)", j.record.Driver, mode)
	}
	if mode == storagev1.VolumeLifecyclePersistent && (j.spec.AttachRequired == nil || *j.spec.AttachRequired) {
		if j.volume.Published, err = j.attached(ctx); err != nil {
			return err
		}
	}
	if j.driver, err = j.Drivers.Get(j.record.Driver); err != nil {
		return waitError{err}
	}
	var published *v1.SecretReference
	switch {
	case j.pv != nil:
		if j.driver.Can(csi.Stages) {
			j.volume.Staging = filepath.Join(j.csiFolder(), stagedKey(j.record), csi.GlobalMount)
		}
		published = j.pv.Spec.CSI.NodePublishSecretRef
		if ref := j.pv.Spec.CSI.NodeStageSecretRef; ref != nil && j.driver.Can(csi.Stages) {
			if j.stage, err = j.secret(ctx, *ref); err != nil {
				return err
			}
		}
	case j.inline.NodePublishSecretRef != nil:
		published = &v1.SecretReference{Namespace: j.p.pod.Namespace, Name: j.inline.NodePublishSecretRef.Name}
	}
	j.volume.Secrets = map[string]string{}
	if published != nil {
		if j.volume.Secrets, err = j.secret(ctx, *published); err != nil {
			return err
		}
	}
	return j.tellOfPod(ctx)
}

// tellOfPod adds what the driver wants to know of the pod, as its CSIDriver says.
func (j *job) tellOfPod(ctx context.Context) error {
	pod := j.p.pod
	j.volume.Attributes = maps.Clone(j.volume.Attributes)
	if isTrue(j.spec.PodInfoOnMount) {
		maps.Copy(j.volume.Attributes, map[string]string{
			"csi.storage.k8s.io/pod.name": pod.Name, "csi.storage.k8s.io/pod.namespace": pod.Namespace,
			"csi.storage.k8s.io/pod.uid":             string(pod.UID),
			"csi.storage.k8s.io/serviceAccount.name": pod.Spec.ServiceAccountName,
			"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(j.inline != nil),
		})
	}
	if len(j.spec.TokenRequests) == 0 || j.p.node.Tokens == nil {
		return nil
	}
	tokens := map[string]authv1.TokenRequestStatus{}
	for _, r := range j.spec.TokenRequests {
		token, renew, err := j.p.node.Tokens.Token(ctx, pod, r.Audience, r.ExpirationSeconds)
		if err != nil {
			return fmt.Errorf("a token of the service account %s/%s: %w", pod.Namespace, pod.Spec.ServiceAccountName, err)
		}
		tokens[r.Audience] = authv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(renew)}
	}
	text, err := json.Marshal(tokens)
	if err != nil {
		return err
	}
	to := j.volume.Attributes
	if isTrue(j.spec.ServiceAccountTokenInSecrets) {
		to = j.volume.Secrets
	}
	to["csi.storage.k8s.io/serviceAccount.tokens"] = string(text)
	return nil
}

// secret is what a Secret holds. It is not kept.
func (j *job) secret(ctx context.Context, ref v1.SecretReference) (map[string]string, error) {
	object, err := get(ctx, j.Client.CoreV1().Secrets(ref.Namespace).Get, ref.Name)
	called := "Secret " + ref.Namespace + "/" + ref.Name
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s cannot be read: %w", called, err)
	case object == nil:
		return nil, wait("%s does not exist", called)
	}
	out := map[string]string{}
	for key, value := range object.Data {
		out[key] = string(value)
	}
	return out, nil
}

// attachmentName is the name of a VolumeAttachment, as its maker gives it.
func attachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// attached is what the attacher said of the volume. The volume has first to be on the Node as in use, so that it is not detached
// from then on, and as attached; both are the kubelet's conditions. Without the attach/detach controller the attachment alone counts.
func (j *job) attached(ctx context.Context) (map[string]string, error) {
	unique := uniqueName(j.record)
	j.want(string(j.p.pod.UID), unique)
	node := j.node.Load()
	name := v1.UniqueVolumeName(unique)
	switch {
	case node == nil || !slices.Contains(node.Status.VolumesInUse, name):
		return nil, wait("the volume is not among volumesInUse of the Node yet")
	case !slices.ContainsFunc(node.Status.VolumesAttached, func(a v1.AttachedVolume) bool { return a.Name == name }):
		return nil, wait("volume %s of CSI driver %s is not attached to this node yet", j.record.Volume, j.record.Driver)
	}
	a, err := get(ctx, j.Client.StorageV1().VolumeAttachments().Get, j.record.Attached)
	switch {
	case err != nil:
		return nil, fmt.Errorf("VolumeAttachment %s cannot be read: %w", j.record.Attached, err)
	case a == nil || a.DeletionTimestamp != nil:
		return nil, wait("VolumeAttachment %s does not exist, or is being deleted", j.record.Attached)
	case !a.Status.Attached && a.Status.AttachError != nil:
		return nil, wait("volume %s cannot be attached: %s", j.record.Volume, a.Status.AttachError.Message)
	case !a.Status.Attached:
		return nil, wait("volume %s of CSI driver %s is not attached to this node yet", j.record.Volume, j.record.Driver)
	}
	return a.Status.AttachmentMetadata, nil
}

// claimAndStage notes on the disk that the pod has the volume, and stages it where the driver stages. For one volume nothing else
// of that runs meanwhile: while a record of any pod is there, nobody unstages.
func (j *job) claimAndStage(ctx context.Context, folder string) error {
	if j.pv == nil { // no other pod has it, and such volumes are not staged
		return j.record.Write(j.p.Root, folder)
	}
	return j.alone(ctx, stagedKey(j.record), func(ctx context.Context) error {
		if slices.Contains(j.pv.Spec.AccessModes, v1.ReadWriteOncePod) {
			if other, err := j.usedBy(string(j.p.pod.UID)); err != nil || other != "" {
				return errors.Join(err, wait("PersistentVolume %s is for one pod alone (ReadWriteOncePod), and pod %s has it", j.pv.Name, other))
			}
		}
		if err := j.record.Write(j.p.Root, folder); err != nil || !j.driver.Can(csi.Stages) {
			return err
		}
		return j.stageVolume(ctx)
	})
}

// usedBy is another pod that has a record of the volume; empty: none.
func (j *job) usedBy(uid string) (string, error) {
	all, err := j.published()
	for _, o := range all {
		if o.uid != uid && o.Same(j.record) {
			return o.uid, nil
		}
	}
	return "", err
}

func (j *job) stageVolume(ctx context.Context) error {
	at := filepath.Join(j.csiFolder(), stagedKey(j.record))
	if err := os.MkdirAll(filepath.Join(at, csi.GlobalMount), folderMode); err != nil {
		return err
	}
	root, err := safepath.OpenRoot(at)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read only
	is, _, err := root.IsMountPoint(csi.GlobalMount)
	if err != nil || is {
		return err
	}
	if err := (csi.Record{Driver: j.record.Driver, Handle: j.record.Handle}).Write(root, "."); err != nil {
		return err
	}
	j.touch()
	v := j.volume
	v.Secrets = j.stage
	v.Attributes = j.pv.Spec.CSI.VolumeAttributes // those of no pod
	return j.driver.Stage(ctx, v)
}

// changesOwner says that the agent gives the volume to the pod's fsGroup, by the fsGroupPolicy of the driver (KEP-1682).
func (j *job) changesOwner() bool {
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if j.spec.FSGroupPolicy != nil {
		policy = *j.spec.FSGroupPolicy
	}
	switch {
	case j.volume.Group == nil || j.readOnly || policy == storagev1.NoneFSGroupPolicy || j.driver.Can(csi.MountGroup):
		return false
	case policy == storagev1.FileFSGroupPolicy:
		return true
	}
	return j.volume.FSType != "" && (j.inline != nil || slices.ContainsFunc(j.pv.Spec.AccessModes,
		func(m v1.PersistentVolumeAccessMode) bool { return m == v1.ReadWriteOnce || m == v1.ReadWriteOncePod }))
}

// unmount has the driver take the volume away. Without a record, as where the agent ended before it wrote one, the driver was not
// asked for anything.
func (csiVolume) unmount(ctx context.Context, p podFolder, volume string) error {
	folder := csiFolder(volume)
	target := filepath.Join(folder, csi.MountFolder)
	r, err := csi.Read(p.Root, folder)
	switch {
	case isAbsent(err):
	case err != nil: // a kubelet that was cut off: where something is mounted it stays, for nobody can be told to undo it
		p.node.log.Warn("whose a volume is cannot be read", "pod", filepath.Base(p.Path()), "volume", volume, "error", err)
	case p.node.Storage == nil:
		return fmt.Errorf("volume %s is of CSI driver %s, and there are none without an API server", volume, r.Driver)
	default:
		driver, err := p.node.Storage.Drivers.Get(r.Driver)
		if err != nil {
			return err
		}
		p.node.Storage.touch()
		if err := driver.Unpublish(ctx, r.Handle, filepath.Join(p.Path(), target)); err != nil {
			return err
		}
	}
	if err := p.checkUnmounted(target); err != nil {
		return err
	}
	return safepath.RemoveAllOneFilesystem(ctx, p.Root, folder)
}

// checkUnmounted is an error where the driver left something mounted.
func (p podFolder) checkUnmounted(target string) error {
	is, _, err := p.IsMountPoint(target)
	if err == nil && is {
		return fmt.Errorf("the driver left %s mounted", filepath.Join(p.Path(), target))
	}
	return ignoreAbsent(err)
}
