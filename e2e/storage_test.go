//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// boundClaim makes a claim and the volume that it is bound to, as a provisioner and a binder do. A pod that is given owns the
// claim.
func boundClaim(t *testing.T, c *cluster.Cluster, ns, name string, source corev1.PersistentVolumeSource, owner *corev1.Pod,
	change ...func(*corev1.PersistentVolumeClaimSpec, *corev1.PersistentVolumeSpec)) {
	t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	modes, class, volume := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, "", ns+"-"+name
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, StorageClassName: &class, VolumeName: volume, Resources: corev1.VolumeResourceRequirements{Requests: size}}}
	if owner != nil {
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("Pod"))}
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: modes, Capacity: size, PersistentVolumeSource: source}}
	for _, change := range change {
		change(&claim.Spec, &pv.Spec)
	}
	claims, volumes := c.Admin.CoreV1().PersistentVolumeClaims(ns), c.Admin.CoreV1().PersistentVolumes()
	claim, err := claims.Create(t.Context(), claim, metav1.CreateOptions{})
	must(t, err)
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ns, Name: name, UID: claim.UID}
	if source.Local != nil {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}},
		}}}}
	}
	_, err = volumes.Create(t.Context(), pv, metav1.CreateOptions{})
	must(t, err)
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: modes, Capacity: size}
	_, err = claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	must(t, err)
}

// A pod has volumes of a CSI driver, by a claim of its own, by one that was created for it and inline, and a local one. It waits
// for the driver by name; its writes are in the volumes; an agent that was killed finds all of it and, like the kubelet, makes
// the driver stage and publish it once more. A claim that was enlarged before is grown in use, and its figures are among the
// metrics. At the end each volume is removed once.
func TestPersistentVolumes(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) {
		a.Config["authentication"] = map[string]any{"x509": map[string]any{"clientCAFile": c.CAFile}}
	})
	d := &csitest.Driver{Name: ns + ".example.org", Data: t.TempDir(), Can: []api.NodeServiceCapability_RPC_Type{
		api.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, api.NodeServiceCapability_RPC_EXPAND_VOLUME,
		api.NodeServiceCapability_RPC_GET_VOLUME_STATS}}
	no, yes := false, true
	_, err := c.Admin.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: d.Name},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &no, PodInfoOnMount: &yes, NodeAllocatableUpdatePeriodSeconds: new(int64(10)),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}}},
		metav1.CreateOptions{})
	must(t, err)
	local := t.TempDir()
	of := func(handle string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: d.Name, VolumeHandle: handle}}
	}
	boundClaim(t, c, ns, "claim", of("one"), nil)
	boundClaim(t, c, ns, "local", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: local}}, nil)
	_, err = c.Admin.CoreV1().PersistentVolumes().Patch(t.Context(), ns+"-local", types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"pv.beta.kubernetes.io/gid": "4711"}}}`), metav1.PatchOptions{})
	must(t, err)
	pod := create(t, c, ns, n.Name, manifest(s, "p", strings.ReplaceAll(`
terminationGracePeriodSeconds: 1
containers:
- name: c
  image: HELLO
  args: [write, /claim/x, one, --, write, /scratch/x, two, --, write, /inline/x, three, --, write, /local/x, four, --, sleep]
  volumeMounts:
  - {name: claim, mountPath: /claim}
  - {name: scratch, mountPath: /scratch}
  - {name: inline, mountPath: /inline}
  - {name: local, mountPath: /local}
volumes:
- {name: claim, persistentVolumeClaim: {claimName: claim}}
- name: scratch
  ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}
- {name: inline, csi: {driver: DRIVER}}
- {name: local, persistentVolumeClaim: {claimName: local}}`, "DRIVER", d.Name)))
	boundClaim(t, c, ns, "p-scratch", of("two"), pod)
	await(t, func() error {
		out, notes, _ := playlet(t, "pods", "-A", "--admin-socket="+a.AdminSocket)
		if want := "CSI driver " + d.Name + " is not registered on this node"; !strings.Contains(out+notes, "containers wait for volume ") ||
			!strings.Contains(out+notes, want) {
			return errors.New(out + notes)
		}
		return nil
	})
	must(t, d.Start(a.RootDir))
	defer d.Stop()
	awaitAPIPod(t, c, ns, "p", ready)
	awaitAPIPod(t, c, ns, "p", func(p *corev1.Pod) error {
		if u := p.Status.ContainerStatuses[0].User; u == nil || u.Linux == nil || !slices.Contains(u.Linux.SupplementalGroups, 4711) {
			return fmt.Errorf("its user is %+v, want the group of the local volume", u)
		}
		return nil
	})
	await(t, func() error {
		for _, file := range []string{filepath.Join(d.Data, "one", "x"), filepath.Join(d.Data, "two", "x"), filepath.Join(local, "x")} {
			if _, err := os.Stat(file); err != nil {
				return err
			}
		}
		found, err := filepath.Glob(filepath.Join(d.Data, "csi-*", "x"))
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("of the inline volume there is %v", found)
		}
		return err
	})
	for _, limit := range []int64{7, 5} { // the second is read at the CSIDriver's interval
		d.Limit.Store(limit)
		await(t, func() error {
			node, err := c.Admin.StorageV1().CSINodes().Get(t.Context(), n.Name, metav1.GetOptions{})
			if err == nil && (len(node.Spec.Drivers) != 1 || node.Spec.Drivers[0].Name != d.Name ||
				int64(*node.Spec.Drivers[0].Allocatable.Count) != limit) {
				err = fmt.Errorf("the CSINode has %+v", node.Spec.Drivers)
			}
			return err
		})
	}
	awaitNode(t, c, n.Name, func(node *corev1.Node) error {
		if !strings.Contains(node.Annotations["csi.volume.kubernetes.io/nodeid"], d.Name) || node.Labels["topology."+d.Name+"/zone"] != "a" {
			return fmt.Errorf("annotations %v, labels %v", node.Annotations, node.Labels)
		}
		return nil
	})
	began := d.Calls()
	if got := callsByName(began); got["Stage"] != 2 || got["Publish"] != 3 || len(began) != 5 {
		t.Errorf("the driver was asked for %v", began)
	}
	enlarge(t, c, ns, "claim", "2Mi")
	must(t, a.Kill9())
	must(t, a.Start())
	await(t, func() error {
		var in any
		return a.Admin(t.Context(), "/v1/explain/pod/p?namespace="+ns, &in)
	})
	awaitAPIPod(t, c, ns, "p", ready)
	await(t, func() error {
		if got := callsByName(d.Calls()); got["Stage"] != 4 || got["Publish"] != 6 || got["Expand"] != 1 || len(d.Calls()) != 11 {
			return fmt.Errorf("an agent that was started anew asked for %v", got)
		}
		return nil
	})
	var claim *corev1.PersistentVolumeClaim
	await(t, func() error {
		claim, err = c.Admin.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "claim", metav1.GetOptions{})
		if err == nil && (claim.Status.Capacity.Storage().String() != "2Mi" || len(claim.Status.AllocatedResourceStatuses) > 0 ||
			len(claim.Status.Conditions) > 0) {
			err = fmt.Errorf("the claim has %+v", claim.Status)
		}
		return err
	})
	await(t, func() error {
		text, err := c.Admin.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", n.Name+":"+fmt.Sprint(a.Config["port"]),
			"proxy/metrics").DoRaw(t.Context())
		want := fmt.Sprintf("kubelet_volume_stats_capacity_bytes{namespace=%q,persistentvolumeclaim=%q} 2.097152e+06", ns, "claim")
		if err == nil && !strings.Contains(string(text), want) {
			err = fmt.Errorf("there is no %s", want)
		}
		return err
	})
	for _, uid := range []types.UID{pod.UID, claim.UID} {
		awaitEvents(t, c, ns, string(uid), map[string]int32{
			"Normal FileSystemResizeSuccessful : MountVolume.NodeExpandVolume succeeded for volume ": 1})
	}
	began = d.Calls()
	remove(t, c, ns, "p")
	awaitNoAPIPod(t, c, ns, "p")
	await(t, func() error {
		if got := callsByName(d.Calls()[len(began):]); got["Unpublish"] != 3 || got["Unstage"] != 2 {
			return fmt.Errorf("the driver was asked for %v", d.Calls())
		}
		if _, err := os.Stat(filepath.Join(a.RootDir, "pods", string(pod.UID))); !os.IsNotExist(err) {
			return fmt.Errorf("the pod's folder is left: %w", err)
		}
		staged, _ := filepath.Glob(filepath.Join(a.RootDir, "plugins/kubernetes.io/csi", d.Name, "*"))
		if len(staged) > 0 {
			return fmt.Errorf("left: %v", staged)
		}
		return nil
	})
	if got := d.Calls(); len(got) != 16 {
		t.Errorf("the driver was asked for %v", got)
	}
	awaitNode(t, c, n.Name, func(node *corev1.Node) error {
		if len(node.Status.VolumesInUse) > 0 {
			return fmt.Errorf("in use: %v", node.Status.VolumesInUse)
		}
		return nil
	})
	for _, folder := range []string{filepath.Join(d.Data, "one"), local} {
		if _, err := os.Stat(filepath.Join(folder, "x")); err != nil {
			t.Errorf("what the pod wrote is gone with it: %v", err)
		}
	}
}

// enlarge plays a resizer: the volume is larger, and the claim leaves the file system to the node.
func enlarge(t *testing.T, c *cluster.Cluster, ns, name, size string) {
	t.Helper()
	claims, volumes := c.Admin.CoreV1().PersistentVolumeClaims(ns), c.Admin.CoreV1().PersistentVolumes()
	pv, err := volumes.Get(t.Context(), ns+"-"+name, metav1.GetOptions{})
	must(t, err)
	list := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	pv.Spec.Capacity = list
	_, err = volumes.Update(t.Context(), pv, metav1.UpdateOptions{})
	must(t, err)
	claim, err := claims.Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	claim.Status.AllocatedResources = list
	claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
		corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending}
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
		Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
	_, err = claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	must(t, err)
}

// callsByName counts calls by their names.
func callsByName(calls []string) map[string]int {
	out := map[string]int{}
	for _, c := range calls {
		name, _, _ := strings.Cut(c, " ")
		out[name]++
	}
	return out
}
