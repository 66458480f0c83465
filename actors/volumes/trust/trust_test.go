package trust

import (
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	alpha "k8s.io/api/certificates/v1alpha1"
	beta "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundleOf returns a bundle with these certificates. Only their text matters here.
func bundleOf(name, signer, label string, certificates ...string) *beta.ClusterTrustBundle {
	text := "a comment\n"
	for _, c := range certificates {
		text += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "header"}, Bytes: []byte(c)}))
	}
	return &beta.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"is": label}},
		Spec: beta.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text}}
}

func sourceOf(t *testing.T, client *fake.Clientset) *Source {
	t.Helper()
	s := New(client, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	return s
}

// read returns the certificates once the bundles have been listed, sorted as they come.
func read(t *testing.T, s *Source, from v1.ClusterTrustBundleProjection) (out []string, err error) {
	t.Helper()
	var text []byte
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if text, err = s.Anchors(&from); !errors.Is(err, ErrUnread) || strings.Contains(err.Error(), "%!") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the bundles are not listed: %v", err)
		}
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			t.Errorf("got a block %s with the headers %v", block.Type, block.Headers)
		}
		out = append(out, string(block.Bytes))
	}
	if strings.Contains(string(text), "comment") {
		t.Errorf("a comment is left in %s", text)
	}
	return out, err
}

// same reports whether two lists have the same certificates, in any order.
func same(got []string, want string) bool {
	all := map[string]bool{}
	for _, c := range got {
		all[c] = true
	}
	for _, c := range strings.Fields(want) {
		if !all[c] {
			return false
		}
	}
	return len(got) == len(strings.Fields(want))
}

func TestSource_Anchors(t *testing.T) {
	const signer = "example.com/a"
	s := sourceOf(t, fake.NewClientset(bundleOf("one", "", "x", "A", "B", "A"), bundleOf("s:1", signer, "x", "A", "C"),
		bundleOf("s:2", signer, "y", "C", "D"), bundleOf("other", "example.com/b", "x", "E")))
	of := func(labels *metav1.LabelSelector) v1.ClusterTrustBundleProjection {
		return v1.ClusterTrustBundleProjection{SignerName: new(signer), LabelSelector: labels}
	}
	optional := of(nil)
	optional.Optional = new(true)
	for name, c := range map[string]struct {
		from      v1.ClusterTrustBundleProjection
		want, err string
	}{
		"a name":            {from: v1.ClusterTrustBundleProjection{Name: new("one")}, want: "A B"},
		"a signer":          {from: of(&metav1.LabelSelector{}), want: "A C D"},
		"labels":            {from: of(&metav1.LabelSelector{MatchLabels: map[string]string{"is": "y"}}), want: "C D"},
		"no selector":       {from: of(nil), err: `ClusterTrustBundle of signer example.com/a with the labels "" does not exist`},
		"optional":          {from: optional},
		"an absent name":    {from: v1.ClusterTrustBundleProjection{Name: new("none")}, err: "ClusterTrustBundle none does not exist"},
		"an optional name":  {from: v1.ClusterTrustBundleProjection{Name: new("none"), Optional: new(true)}},
		"neither":           {err: "neither a name nor a signerName"},
		"a selector's form": {from: of(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Odd"}}}), err: "Odd"},
	} {
		got, err := read(t, s, c.from)
		if !same(got, c.want) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, %v, want %q, %q", name, got, err, c.want, c.err)
		}
		if c.err != "" && strings.Contains(c.err, "exist") && messages.CauseOf(err).Code != messages.CauseObjectAbsent {
			t.Errorf("%s: got the cause %+v", name, messages.CauseOf(err))
		}
	}
}

// The order of certificates stays while a process lives, also when one is added, and is another one in each process.
func TestSource_Order(t *testing.T) {
	var certificates []string
	for i := range 20 {
		certificates = append(certificates, fmt.Sprint("certificate ", i))
	}
	client := fake.NewClientset(bundleOf("one", "", "", certificates...))
	from := v1.ClusterTrustBundleProjection{Name: new("one")}
	s := sourceOf(t, client)
	first, err := read(t, s, from)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := read(t, s, from); fmt.Sprint(again) != fmt.Sprint(first) {
		t.Error("the order changes within a process")
	}
	if other, _ := read(t, sourceOf(t, client), from); fmt.Sprint(other) == fmt.Sprint(first) { // by chance once in 20!
		t.Error("two processes have the same order")
	}
}

// Changes are followed, and increase the version.
func TestSource_Changes(t *testing.T) {
	client := fake.NewClientset(bundleOf("one", "", "", "A"))
	s := sourceOf(t, client)
	from := v1.ClusterTrustBundleProjection{Name: new("one"), Optional: new(true)}
	if got, err := read(t, s, from); err != nil || !same(got, "A") {
		t.Fatalf("got %v, %v", got, err)
	}
	bundles := client.CertificatesV1beta1().ClusterTrustBundles()
	await := func(want string, version uint64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if got, err := read(t, s, from); err == nil && same(got, want) && s.Version() > version {
				return
			} else if time.Now().After(end) {
				t.Fatalf("got %v, %v, want %s", got, err, want)
			}
		}
	}
	version := s.Version()
	if _, err := bundles.Update(t.Context(), bundleOf("one", "", "", "B"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("B", version)
	version = s.Version()
	if err := bundles.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("", version)
}

// An API server without v1beta1 is asked for v1alpha1. One without either has a clear error.
func TestSource_Versions(t *testing.T) {
	client := fake.NewClientset(&alpha.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec: alpha.ClusterTrustBundleSpec{TrustBundle: bundleOf("", "", "", "A").Spec.TrustBundle}})
	none := func(a kubetesting.Action) (bool, runtime.Object, error) {
		return a.GetResource().Version == "v1beta1", nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	}
	client.PrependReactor("list", "clustertrustbundles", none)
	from := v1.ClusterTrustBundleProjection{Name: new("one")}
	if got, err := read(t, sourceOf(t, client), from); err != nil || !same(got, "A") {
		t.Errorf("got %v, %v", got, err)
	}
	client.PrependReactor("list", "clustertrustbundles", func(a kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	})
	s := sourceOf(t, client)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := s.Anchors(&from)
		if errors.Is(err, ErrUnread) && strings.Contains(err.Error(), "the API server has no ClusterTrustBundles") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("got %v", err)
		}
	}
}
