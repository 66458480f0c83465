//go:build e2e

package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The first mount of a volume that has to be attached waits for volumesInUse and for the attachment, has no Event of a failure,
// and is granted all that it reads and watches. The test is the attach/detach controller and the attacher.
func TestFirstMountOfAnAttachedVolume(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(*stack.Agent) {})
	d := &csitest.Driver{Name: ns + ".example.org", Data: t.TempDir(), Can: []api.NodeServiceCapability_RPC_Type{
		api.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}
	must(t, d.Start(a.RootDir))
	defer d.Stop()
	yes, handle := true, "one"
	_, err := c.Admin.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: d.Name},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &yes}}, metav1.CreateOptions{})
	must(t, err)
	await(t, func() error {
		node, err := c.Admin.StorageV1().CSINodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		if err == nil && len(node.Spec.Drivers) == 0 {
			err = errors.New("the driver is not registered")
		}
		return err
	})
	boundClaim(t, c, ns, "claim", corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: d.Name, VolumeHandle: handle}}, nil)
	pod := create(t, c, ns, n.Name, manifest(s, "p", `
terminationGracePeriodSeconds: 1
containers: [{name: c, image: HELLO, args: [write, /claim/x, one, --, sleep], volumeMounts: [{name: claim, mountPath: /claim}]}]
volumes: [{name: claim, persistentVolumeClaim: {claimName: claim}}]`))
	unique := corev1.UniqueVolumeName("kubernetes.io/csi/" + d.Name + "^" + handle)
	awaitNode(t, c, n.Name, func(node *corev1.Node) error {
		if !slices.Contains(node.Status.VolumesInUse, unique) {
			return fmt.Errorf("in use: %v", node.Status.VolumesInUse)
		}
		return nil
	})
	if calls := d.Calls(); len(calls) > 0 {
		t.Errorf("before the volume is attached the driver was asked for %v", calls)
	}
	attachVolume(t, c, n.Name, d.Name, handle, ns+"-claim", unique)
	awaitAPIPod(t, c, ns, "p", ready)
	for _, e := range listEvents(t, c, ns, string(pod.UID)) {
		if e.Reason == "FailedMount" {
			t.Errorf("Event %s: %s", e.Reason, e.Message)
		}
	}
	if log := a.Log(); strings.Contains(log, "volumes operation failed") {
		t.Error("the mount failed before it succeeded")
	}
	remove(t, c, ns, "p")
	awaitNoAPIPod(t, c, ns, "p")
}

// attachVolume does the work of the attacher and of the attach/detach controller.
func attachVolume(t *testing.T, c *cluster.Cluster, node, driver, handle, volume string, unique corev1.UniqueVolumeName) {
	t.Helper()
	attachments := c.Admin.StorageV1().VolumeAttachments()
	a, err := attachments.Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}, metav1.CreateOptions{})
	must(t, err)
	a.Status.Attached = true
	_, err = attachments.UpdateStatus(t.Context(), a, metav1.UpdateOptions{})
	must(t, err)
	patch := fmt.Sprintf(`{"status":{"volumesAttached":[{"name":%q,"devicePath":""}]}}`, unique)
	_, err = c.Admin.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	must(t, err)
}
