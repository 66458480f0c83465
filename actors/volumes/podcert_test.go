package volumes

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	beta "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/volumes/podcert"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// A volume waits for its certificate without a failure, and is written once it is issued and each time it is renewed. A new
// process requests the certificate again, and the files stay until then. A refusal fails the volume for good.
func TestPodCertificate_VolumeFollowsItsSigner(t *testing.T) {
	volumestest.NeedMounts(t)
	n := newNode(t)
	n.disk.node.Log = slog.New(slog.DiscardHandler)
	client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node"}})
	made := 0
	client.PrependReactor("create", "podcertificaterequests", func(a kubetesting.Action) (bool, runtime.Object, error) {
		made++
		a.(kubetesting.CreateAction).GetObject().(*beta.PodCertificateRequest).Name = fmt.Sprint("req-", made)
		return false, nil, nil
	})
	start := func() {
		n.disk.node.Certificates = podcert.New(podcert.Options{Client: client, NodeName: "node", Now: func() time.Time { return n.Now() },
			Account: func(context.Context, *v1.Pod) (*v1.ServiceAccount, error) { return &v1.ServiceAccount{}, nil }})
		n.restart(t)
	}
	answer := func(set func(*beta.PodCertificateRequest)) {
		t.Helper()
		requests := client.CertificatesV1beta1().PodCertificateRequests("ns")
		got, err := requests.Get(t.Context(), fmt.Sprint("req-", made), metav1.GetOptions{})
		must(t, err)
		set(got)
		_, err = requests.Update(t.Context(), got, metav1.UpdateOptions{})
		must(t, err)
	}
	issue := func(r *beta.PodCertificateRequest) { volumestest.Issue(t, r, n.Now(), 2*time.Hour) }
	podOf := func(uid string) *v1.Pod {
		return volumestest.APIPodWith(uid, volumestest.ProjectedVolume("v", v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{
			SignerName: "example.org/pods", KeyType: "ECDSAP256", CredentialBundlePath: "all/bundle.pem", KeyPath: "key.pem",
			CertificateChainPath: "chain.pem"}}))
	}
	file := func(name string) string { return n.pod("u/volumes/kubernetes.io~projected/v/" + name) }
	start()
	pod := podOf("u")
	got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod})
	if f, is := got[0].(messages.VolumesFailed); !is || !f.Quiet || f.Reason.Permanent || f.Reason.Cause.Code != messages.CauseCertificate ||
		f.Reason.Cause.Detail != "ns/req-1" {
		t.Fatalf("before the certificate is issued: got %+v", got)
	}
	answer(issue)
	n.Advance(time.Second)
	n.RunWork()
	pairOf := func() string {
		t.Helper()
		if _, err := tls.LoadX509KeyPair(file("chain.pem"), file("key.pem")); err != nil {
			t.Fatal(err)
		}
		if read(t, file("all/bundle.pem")) != read(t, file("key.pem"))+read(t, file("chain.pem")) {
			t.Error("the bundle is not the key and its chain")
		}
		return read(t, file("key.pem"))
	}
	if m, is := n.sent("u")[0].(messages.VolumesMounted); !is || m.Paths["v"] == "" {
		t.Fatalf("after it is issued: got %+v", m)
	}
	first := pairOf()
	renew := func() string {
		t.Helper()
		was := made
		for end := n.Now().Add(2 * time.Hour); made == was && n.Now().Before(end); { // not over the deadline of an operation
			n.Advance(10 * time.Second)
			n.RunWork()
		}
		answer(issue)
		n.Advance(time.Second)
		n.RunWork()
		return pairOf()
	}
	second := renew()
	if second == first {
		t.Error("the certificate was not renewed")
	}
	start()
	if got := n.ask("u", messages.MountVolumes{UID: "u", Pod: pod}); fmt.Sprintf("%T", got[0]) != "messages.VolumesMounted" || pairOf() != second {
		t.Errorf("after a restart: got %+v", got)
	}
	answer(issue)
	n.Advance(time.Minute)
	n.RunWork()
	if pairOf() == second {
		t.Error("the certificate was not requested again after the restart")
	}
	n.Take()
	n.ask("u2", messages.MountVolumes{UID: "u2", Pod: podOf("u2")})
	answer(func(r *beta.PodCertificateRequest) {
		r.Status.Conditions = []metav1.Condition{{Type: "Denied", Status: metav1.ConditionTrue, Reason: "Unknown", Message: "no such pod"}}
	})
	n.Advance(time.Second)
	n.RunWork()
	failed := n.Take()
	if len(failed) != 2 || failed[0].To != messages.Events || !failed[1].Msg.(messages.VolumesFailed).Reason.Permanent || !strings.Contains(fmt.Sprintf("%+v", failed[1].Msg),
		"PodCertificateRequest ns/req-4 of signer example.org/pods was denied: no such pod") {
		t.Errorf("a denied certificate: got %+v", failed)
	}
	n.disk.node.Certificates = nil
	n.restart(t)
	got = n.ask("u3", messages.MountVolumes{UID: "u3", Pod: podOf("u3")})
	if !strings.Contains(fmt.Sprintf("%+v", got), "feature gate PodCertificateRequest") {
		t.Errorf("without the gate: got %+v", got)
	}
}
