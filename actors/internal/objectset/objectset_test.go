package objectset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func pod(source string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Annotations: map[string]string{SourceAnnotation: source}}}
}

func secretOf(value string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "word", Namespace: "ns"}, Data: map[string][]byte{"key": []byte(value)}}
}

// Pods of the API server cannot read the folder's objects, which their authors could not read there, and static pods cannot
// read the API server's.
func TestTheTwoSetsAreKeptApart(t *testing.T) {
	b := NewBoard(true)
	b.Publish(&Set{Secrets: map[Key]*v1.Secret{{Namespace: "ns", Name: "word"}: secretOf("folder")}})
	b.Put(Ref{Secret, "ns", "word"}, secretOf("server"))
	for source, want := range map[string]string{"api": "server", "file": "folder", "http": "folder", "submit": "folder",
		"": "folder"} {
		if o, found, err := b.Secret(pod(source), "word"); !found || err != nil || string(o.Data["key"]) != want {
			t.Errorf("a pod of %q reads %v, %v", source, found, err)
		}
	}
	if _, _, err := NewBoard(false).Secret(pod("file"), "word"); !errors.Is(err, ErrNone) {
		t.Errorf("a static pod without a folder: %v", err)
	}
	if _, _, err := (&Board{}).Secret(pod("file"), "word"); !errors.Is(err, ErrUnread) || IsUnread(err) {
		t.Errorf("a folder that is not read: %v", err)
	}
}

func TestWhatIsKnownOfAnObject(t *testing.T) {
	b, ref := NewBoard(false), Ref{Secret, "ns", "word"}
	of := pod("api")
	of.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "word"}}
	state := func() string {
		o, found, err := b.Secret(of, "word")
		if IsUnread(err) {
			return "unread"
		}
		if !found {
			return "missing"
		}
		return string(o.Data["key"])
	}
	for i, step := range []struct {
		do   func()
		want string
		news bool
	}{
		{func() {}, "unread", false},
		{func() { b.Fail(ref, errors.New("away")) }, "unread", false},
		{func() { b.Put(ref, nil) }, "missing", true},
		{func() { b.Put(ref, nil) }, "missing", false},
		{func() { b.Put(ref, secretOf("a")) }, "a", true},
		{func() { b.Put(ref, secretOf("a")) }, "a", false},
		{func() { b.Fail(ref, errors.New("away")) }, "a", false},
		{func() { b.Put(Ref{ConfigMap, "ns", "word"}, nil) }, "a", false},
		{func() { b.Put(ref, secretOf("b")) }, "b", true},
		{func() { b.Keep(map[Ref]map[types.UID]bool{ref: {of.UID: true}}) }, "b", false},
		{func() { b.Put(ref, nil) }, "missing", true},
	} {
		before := b.VersionOf(of)
		step.do()
		if got := state(); got != step.want || (b.VersionOf(of) > before) != step.news {
			t.Errorf("step %d: %s, version %d after %d", i, got, b.VersionOf(of), before)
		}
	}
	b.Keep(nil)
	if state() != "unread" || b.VersionOf(of) != 0 {
		t.Errorf("forgotten: %s, version %d", state(), b.VersionOf(of))
	}
}

// A pod gets an immutable object only as it was read after the pod named it. The others keep the earlier one meanwhile.
func TestImmutableObjects_AreReadForEachPod(t *testing.T) {
	b, ref := NewBoard(false), Ref{Secret, "ns", "word"}
	fixed := func(value string) *v1.Secret {
		s, yes := secretOf(value), true
		s.Immutable = &yes
		return s
	}
	state := func(uid types.UID) string {
		p := pod("api")
		p.UID = uid
		o, _, err := b.Secret(p, "word")
		if IsUnread(err) {
			return "unread"
		}
		return string(o.Data["key"])
	}
	keep := func(uids ...types.UID) (stale int) {
		namers := map[types.UID]bool{}
		for _, uid := range uids {
			namers[uid] = true
		}
		return len(b.Keep(map[Ref]map[types.UID]bool{ref: namers}))
	}
	if n := keep("a"); n != 0 {
		t.Errorf("%d objects are stale that were never read", n)
	}
	b.Put(ref, fixed("1"))
	if state("a") != "1" || state("b") != "unread" {
		t.Errorf("a: %s, b, which nothing is known of: %s", state("a"), state("b"))
	}
	if n := keep("a", "b"); n != 1 || state("a") != "1" || state("b") != "unread" {
		t.Errorf("%d stale; a: %s, b: %s", n, state("a"), state("b"))
	}
	b.Fail(ref, errors.New("away"))
	if state("a") != "1" || state("b") != "unread" {
		t.Errorf("while the server is away: a: %s, b: %s", state("a"), state("b"))
	}
	if news := b.Put(ref, fixed("1")); !news || state("b") != "1" || keep("a", "b") != 0 {
		t.Errorf("the same object: news %v, b: %s", news, state("b"))
	}
	if news := b.Put(ref, fixed("1")); news {
		t.Error("the same object for the same pods is news")
	}
	b.Put(ref, secretOf("2"))
	if n := keep("a", "b", "c"); n != 0 || state("c") != "2" {
		t.Errorf("an object that is followed: %d stale, c: %s", n, state("c"))
	}
}

func TestWaitingForWhatIsNotRead(t *testing.T) {
	b, ref := NewBoard(false), Ref{Secret, "ns", "word"}
	read := func() error {
		_, _, err := b.Secret(pod("api"), "word")
		return err
	}
	if err := b.Settle(t.Context(), 0, read); !IsUnread(err) {
		t.Errorf("without time: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Settle(over, time.Hour, read); !IsUnread(err) {
		t.Errorf("when nobody waits: %v", err)
	}
	done := make(chan error)
	go func() { done <- b.Settle(t.Context(), time.Hour, read) }()
	b.Put(Ref{ConfigMap, "ns", "else"}, nil)
	b.Put(ref, nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := (*Board)(nil).Settle(t.Context(), time.Hour, func() error { return ErrNone }); !errors.Is(err, ErrNone) {
		t.Errorf("a node without objects: %v", err)
	}
}

func TestWhatAPodNames(t *testing.T) {
	name := func(n string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: n} }
	env := []v1.EnvVar{
		{Name: "PLAIN", Value: "x"},
		{Name: "FIELD", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "A", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: name("env")}}},
		{Name: "B", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: name("env")}}},
	}
	p := pod("api")
	p.Spec = v1.PodSpec{
		ImagePullSecrets:    []v1.LocalObjectReference{name("registry"), name("")},
		InitContainers:      []v1.Container{{Env: env}},
		Containers:          []v1.Container{{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name("all")}}, {SecretRef: &v1.SecretEnvSource{LocalObjectReference: name("all")}}}}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name("debug")}}}}}},
		Volumes: []v1.Volume{
			{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: name("volume")}}},
			{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "volume"}}},
			{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{}},
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: name("kube-root-ca.crt")}},
				{Secret: &v1.SecretProjection{LocalObjectReference: name("part")}},
			}}}},
		},
	}
	var got []string
	for r := range Refs(p) {
		got = append(got, strings.Replace(r.String(), " ns/", "/", 1))
	}
	slices.Sort(got)
	want := "[ConfigMap/all ConfigMap/debug ConfigMap/env ConfigMap/kube-root-ca.crt ConfigMap/volume Secret/all Secret/env Secret/part Secret/registry Secret/volume]"
	if fmt.Sprint(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for range Refs(p) {
		break // asking for one is fine
	}
}

// A change of the folder touches only pods that refer to the object; a removal may touch all.
func TestVersionOf_ChangesOfTheFolder(t *testing.T) {
	b := NewBoard(true)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Annotations: map[string]string{"kubernetes.io/config.source": "file"}}}
	pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "word"}}}}
	if OfAPIServer(pod) {
		t.Fatal("the pod is of the API server")
	}
	of := func(names ...string) *Set {
		s := &Set{Secrets: map[Key]*v1.Secret{}}
		for _, name := range names {
			s.Secrets[Key{"ns", name}] = secretOf(name)
		}
		return s
	}
	for i, step := range []struct {
		set  *Set
		news bool
	}{
		{of(), true}, {of("other"), false}, {of("other", "more"), false}, {of("other", "more", "word"), true},
		{of("other", "more", "word", "last"), false}, {of("other"), true},
	} {
		before := b.VersionOf(pod)
		if b.Publish(step.set); (b.VersionOf(pod) > before) != step.news {
			t.Errorf("step %d: version %d after %d", i, b.VersionOf(pod), before)
		}
	}
}
