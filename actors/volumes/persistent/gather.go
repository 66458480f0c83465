package persistent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// describe sets the fields of the record and the volume that the source determines.
func (j *job) describe() {
	j.volume.Migrated = j.migrated
	j.volume.ReadOnly, j.volume.AccessMode, j.volume.Attributes = j.readOnly, v1.ReadWriteOnce, map[string]string{}
	if in := j.inline; in != nil {
		hash := sha256.Sum256([]byte(string(j.p.Pod.UID) + j.name))
		handle := fmt.Sprintf("csi-%x", hash)
		j.record = csi.Record{Volume: j.name, Driver: in.Driver, Handle: handle, Node: j.NodeName,
			Lifecycle: string(storagev1.VolumeLifecycleEphemeral), Attached: attachmentName(handle, in.Driver, j.NodeName)}
		if in.FSType != nil {
			j.volume.FSType = *in.FSType
		}
		maps.Copy(j.volume.Attributes, in.VolumeAttributes)
	} else {
		source := j.pv.Spec.CSI
		j.record = j.recordOf(j.pv)
		j.volume.FSType, j.volume.Options = source.FSType, j.pv.Spec.MountOptions
		if len(j.pv.Spec.AccessModes) > 0 {
			j.volume.AccessMode = j.pv.Spec.AccessModes[0]
		}
		maps.Copy(j.volume.Attributes, source.VolumeAttributes)
	}
	j.volume.Handle, j.volume.Group = j.record.Handle, kinds.FSGroupOf(j.p.Pod)
	if j.volume.Block = j.pv != nil && isBlock(j.pv); j.volume.Block {
		j.volume.FSType, j.volume.Options, j.volume.Group = "", nil, nil
	}
	j.volume.Owner = csi.Owner{Namespace: j.p.Pod.Namespace, ID: string(j.p.Pod.UID), Volume: j.name}
}

// gather obtains everything that others provide: the driver, the attachment, secrets and tokens.
func (j *job) gather(ctx context.Context) (err error) {
	mode := storagev1.VolumeLifecycleMode(j.record.Lifecycle)
	modes := j.spec.VolumeLifecycleModes
	if len(modes) == 0 {
		modes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent} // the API's default
	}
	if !slices.Contains(modes, mode) {
		return fmt.Errorf("CSI driver %s has no volumes of the mode %s (volumeLifecycleModes of its CSIDriver)", j.record.Driver,
			mode)
	}
	if mode == storagev1.VolumeLifecyclePersistent && attaches(j.spec) {
		if j.volume.Published, err = j.attachment(ctx); err != nil {
			return err
		}
	} else { // it may have waited for an attachment before its CSIDriver was created
		j.change(j.p.Pod.UID, j.name, func(h *podVolume) { h.wants, h.waits = "", time.Time{} })
	}
	if j.driver, err = j.Drivers.Get(j.record.Driver); err != nil {
		name, drivers := j.record.Driver, j.Drivers
		return kinds.WaitError{Err: err, Over: func() bool { _, err := drivers.Get(name); return err == nil }}
	}
	var published *v1.SecretReference
	switch {
	case j.pv != nil:
		j.volume.Staging = j.stagingOf(j.driver)
		published = j.pv.Spec.CSI.NodePublishSecretRef
		if ref := j.pv.Spec.CSI.NodeStageSecretRef; ref != nil && j.driver.Can(csi.Stages) {
			if j.stage, err = j.secret(ctx, *ref); err != nil {
				return err
			}
		}
	case j.inline.NodePublishSecretRef != nil:
		published = &v1.SecretReference{Namespace: j.p.Pod.Namespace, Name: j.inline.NodePublishSecretRef.Name}
	}
	j.volume.Secrets = map[string]string{}
	if published != nil {
		if j.volume.Secrets, err = j.secret(ctx, *published); err != nil {
			return err
		}
	}
	return j.addPodInfo(ctx)
}

// stagingOf returns the path where the driver stages the volume; empty: the driver does not stage.
func (j *job) stagingOf(d *csi.Driver) string {
	if !d.Can(csi.Stages) {
		return ""
	}
	if j.volume.Block {
		return filepath.Join(csi.DevicesPath(j.RootDir), csi.Devices{}.Staging(j.record.Volume))
	}
	return filepath.Join(j.csiFolder(), stagedKey(j.record), csi.GlobalMount)
}

// addPodInfo adds the pod's names and tokens that the CSIDriver requests.
func (j *job) addPodInfo(ctx context.Context) error {
	pod := j.p.Pod
	j.volume.Attributes = maps.Clone(j.volume.Attributes)
	if ptr.Deref(j.spec.PodInfoOnMount, false) {
		maps.Copy(j.volume.Attributes, map[string]string{
			"csi.storage.k8s.io/pod.name": pod.Name, "csi.storage.k8s.io/pod.namespace": pod.Namespace,
			"csi.storage.k8s.io/pod.uid":             string(pod.UID),
			"csi.storage.k8s.io/serviceAccount.name": pod.Spec.ServiceAccountName,
			"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(j.inline != nil),
		})
	}
	if len(j.spec.TokenRequests) == 0 || j.p.Node.Tokens == nil {
		return nil
	}
	tokens := map[string]authv1.TokenRequestStatus{}
	for _, r := range j.spec.TokenRequests {
		token, err := j.p.Node.Tokens.Token(ctx, pod, r.Audience, r.ExpirationSeconds)
		if err != nil {
			return fmt.Errorf("a token of the service account %s/%s: %w", pod.Namespace, pod.Spec.ServiceAccountName, err)
		}
		tokens[r.Audience] = authv1.TokenRequestStatus{Token: token.Text, ExpirationTimestamp: metav1.NewTime(token.Expires)}
	}
	text, err := json.Marshal(tokens)
	if err != nil {
		return err
	}
	to := j.volume.Attributes
	if ptr.Deref(j.spec.ServiceAccountTokenInSecrets, false) {
		to = j.volume.Secrets
	}
	to["csi.storage.k8s.io/serviceAccount.tokens"] = string(text)
	return nil
}

// secret returns the data of a Secret. It is not cached.
func (j *job) secret(ctx context.Context, ref v1.SecretReference) (map[string]string, error) {
	get := j.Client.CoreV1().Secrets(ref.Namespace).Get
	secret, err := fetch(ctx, j.p.Pod, object{"Secret", ref.Namespace + "/" + ref.Name}, get, ref.Name)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for key, value := range secret.Data {
		out[key] = string(value)
	}
	return out, nil
}
