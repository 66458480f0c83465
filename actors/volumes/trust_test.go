package volumes

import (
	"encoding/pem"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	beta "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/trust"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// A volume has the certificates of a ClusterTrustBundle and follows its changes with the next sweep. A process that cannot read
// the bundles keeps its files.
func TestTrustBundle_VolumeFollowsIt(t *testing.T) {
	volumestest.NeedMounts(t)
	n := newNode(t)
	quiet := slog.New(slog.DiscardHandler)
	of := func(certificate string) *beta.ClusterTrustBundle {
		return &beta.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: beta.ClusterTrustBundleSpec{
			TrustBundle: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(certificate)}))}}
	}
	client := fake.NewClientset(of("A"))
	n.disk.node.Bundles = trust.New(client, quiet)
	t.Cleanup(n.disk.node.Bundles.Close)
	n.restart(t)
	pod := volumestest.APIPodWith("u", v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o644)), Sources: []v1.VolumeProjection{{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{
			Name: new("one"), Path: "in/ca.pem"}}}}}})
	at := n.pod("u/volumes/kubernetes.io~projected/v/in/ca.pem")
	mount := func() (failure string) {
		for _, m := range n.ask("u", messages.MountVolumes{UID: "u", Pod: pod}) {
			if f, is := m.(messages.VolumesFailed); is {
				failure = f.Reason.Message
			}
		}
		return failure
	}
	await := func(certificate string, step func() string) {
		t.Helper()
		want, failure := of(certificate).Spec.TrustBundle, ""
		for end := time.Now().Add(time.Minute); !exists(t, at) || read(t, at) != want; time.Sleep(time.Millisecond) {
			if failure = step(); time.Now().After(end) {
				t.Fatalf("%s has not the certificate %s: %s", filepath.Base(at), certificate, failure)
			}
		}
	}
	await("A", func() string { n.Advance(kinds.Retry.Max); return mount() })
	if mode := mode(t, at); mode.Perm() != 0o644 {
		t.Errorf("its mode is %v", mode)
	}
	_, err := client.CertificatesV1beta1().ClusterTrustBundles().Update(t.Context(), of("B"), metav1.UpdateOptions{})
	must(t, err)
	await("B", func() string {
		n.Send(messages.Pods, messages.PodFoldersWanted{UIDs: map[string]bool{"u": true}})
		n.RunWork()
		return ""
	})
	broken := fake.NewClientset()
	broken.PrependReactor("list", "clustertrustbundles", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no API server")
	})
	n.disk.node.Bundles = trust.New(broken, quiet)
	t.Cleanup(n.disk.node.Bundles.Close)
	n.restart(t)
	if failure := mount(); failure != "" || read(t, at) != of("B").Spec.TrustBundle {
		t.Errorf("without an API server: got the failure %q", failure)
	}
	n.disk.node.Bundles = nil
	n.restart(t)
	if failure := mount(); !strings.Contains(failure, "feature gates ClusterTrustBundle and ClusterTrustBundleProjection") {
		t.Errorf("without the gate: got the failure %q", failure)
	}
}
