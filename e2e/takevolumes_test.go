//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// everyVolume is a pod with a volume of each kind. It writes to the writable ones.
const everyVolume = `
terminationGracePeriodSeconds: 1
containers:
- name: c
  image: HELLO
  args: [write, /claim/x, data, --, write, /part/x, data, --, write, /scratch/x, data, --, write, /inline/x, data, --, write, /local/x, data,
    --, write, /host/x, data, --, write, /disk/x, data, --, write, /memory/x, data, --, sleep]
  volumeMounts:
  - {name: claim, mountPath: /claim}
  - {name: claim, mountPath: /part, subPath: part}
  - {name: scratch, mountPath: /scratch}
  - {name: inline, mountPath: /inline}
  - {name: local, mountPath: /local}
  - {name: host, mountPath: /host}
  - {name: disk, mountPath: /disk}
  - {name: memory, mountPath: /memory}
  - {name: config, mountPath: /config}
  - {name: config, mountPath: /one, subPath: a}
  - {name: secret, mountPath: /secret}
  - {name: info, mountPath: /info}
  - {name: all, mountPath: /all}
volumes:
- {name: claim, persistentVolumeClaim: {claimName: NAME-claim}}
- name: scratch
  ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}
- {name: inline, csi: {driver: DRIVER}}
- {name: local, persistentVolumeClaim: {claimName: NAME-local}}
- {name: host, persistentVolumeClaim: {claimName: NAME-host}}
- {name: disk, emptyDir: {}}
- {name: memory, emptyDir: {medium: Memory}}
- {name: config, configMap: {name: settings}}
- {name: secret, secret: {secretName: words}}
- {name: info, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
- name: all
  projected: {sources: [{configMap: {name: settings}}, {serviceAccountToken: {path: token, expirationSeconds: 600}}]}`

// Volumes of each kind that the kubelet mounted are unmounted by Playlet, and the reverse. No byte of persistent data is lost,
// and nothing stays mounted. A plain folder that a pod of the kubelet wrote to is kept and reported.
func TestVolumesTakenOverAndGivenBack(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) { asKubelet(t, a) })
	d := &csitest.Driver{Name: ns + ".example.org", Data: t.TempDir(), Can: []api.NodeServiceCapability_RPC_Type{
		api.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}
	no := false
	_, err := c.Admin.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: d.Name},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &no, VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
			storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}}}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.Admin.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.Admin.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "words"}, StringData: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, d.Start(a.RootDir))
	defer d.Stop()

	v := volumesOfPods{t, c, s, a, d, n.Name, ns, t.TempDir()}
	left := v.create("kubelets")
	plain := filepath.Join(a.RootDir, "pods", string(left.UID), "volumes/kubernetes.io~nfs/pv/precious")
	must(t, os.MkdirAll(filepath.Dir(plain), 0o750))
	must(t, os.WriteFile(plain, []byte("data"), 0o600))

	_, err = a.Term()
	must(t, err)
	a.Binary = "" // ours
	must(t, a.Start())
	settled(t, a)
	remove(t, c, ns, "kubelets")
	awaitNoAPIPod(t, c, ns, "kubelets")
	await(t, func() error {
		text, err := os.ReadFile(plain)
		if err != nil || string(text) != "data" {
			return fmt.Errorf("the data is %q, %w", text, err)
		}
		out, notes, _ := playlet(t, "explain", "node", "--admin-socket="+a.AdminSocket)
		if !strings.Contains(out+notes, filepath.Dir(plain)+" holds data although no volume of kubernetes.io/nfs is mounted there") {
			return errors.New(out + notes)
		}
		return nil
	})
	must(t, os.Remove(plain))
	v.cleared("kubelets", left)

	ours := v.create("ours")
	_, err = a.Term()
	must(t, err)
	asKubelet(t, a)
	must(t, a.Start())
	settled(t, a)
	remove(t, c, ns, "ours")
	awaitNoAPIPod(t, c, ns, "ours")
	v.cleared("ours", ours)
}

// volumesOfPods makes pods with every volume, and looks at the volumes after their end.
type volumesOfPods struct {
	*testing.T
	c        *cluster.Cluster
	s        *stack.Stack
	a        *stack.Agent
	d        *csitest.Driver
	node, ns string
	dir      string // of local and hostPath volumes
}

func (v volumesOfPods) create(name string) *corev1.Pod {
	v.Helper()
	of := func(kind string) string { return filepath.Join(v.dir, name+"-"+kind) }
	for _, kind := range []string{"local", "host"} {
		must(v.T, os.Mkdir(of(kind), 0o777))
	}
	csi := func(handle string) corev1.PersistentVolumeSource {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: v.d.Name, VolumeHandle: handle}}
	}
	boundClaim(v.T, v.c, v.ns, name+"-claim", csi(name+"-claim"), nil)
	boundClaim(v.T, v.c, v.ns, name+"-local",
		corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: of("local")}}, nil)
	boundClaim(v.T, v.c, v.ns, name+"-host",
		corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: of("host")}}, nil)
	spec := strings.NewReplacer("NAME", name, "DRIVER", v.d.Name).Replace(everyVolume)
	pod := create(v.T, v.c, v.ns, v.node, manifest(v.s, name, spec))
	boundClaim(v.T, v.c, v.ns, name+"-scratch", csi(name+"-scratch"), pod)
	awaitAPIPod(v.T, v.c, v.ns, name, ready)
	await(v.T, func() error { return v.whole(name) })
	return pod
}

// whole returns an error unless the persistent data of a pod is there.
func (v volumesOfPods) whole(name string) error {
	var errs []error
	for _, file := range []string{
		filepath.Join(v.d.Data, name+"-claim/x"), filepath.Join(v.d.Data, name+"-claim/part/x"),
		filepath.Join(v.d.Data, name+"-scratch/x"), filepath.Join(v.dir, name+"-local/x"), filepath.Join(v.dir, name+"-host/x"),
	} {
		text, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(text)) != "data" {
			err = fmt.Errorf("%s holds %q", file, text)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// cleared waits until nothing of a pod is mounted and its folders have gone; its persistent data is there.
func (v volumesOfPods) cleared(name string, pod *corev1.Pod) {
	v.Helper()
	await(v.T, func() error {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, string(pod.UID)) || strings.Contains(line, "/plugins/kubernetes.io/csi/"+v.d.Name) {
				err = errors.Join(err, errors.New("still mounted: "+line))
			}
		}
		if _, statErr := os.Stat(filepath.Join(v.a.RootDir, "pods", string(pod.UID))); !errors.Is(statErr, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("the pod's folder is left: %w", statErr))
		}
		staged, _ := filepath.Glob(filepath.Join(v.a.RootDir, "plugins/kubernetes.io/csi", v.d.Name, "*"))
		if len(staged) > 0 {
			err = errors.Join(err, fmt.Errorf("still staged: %v", staged))
		}
		return err
	})
	if err := v.whole(name); err != nil {
		v.Errorf("persistent data of pod %s is lost: %v", name, err)
	}
}
