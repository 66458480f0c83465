package status

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/messages"
)

func TestAMirrorPodIsWhatNodesMayCreate(t *testing.T) {
	s := static("web", "h1")
	before := s.DeepCopy()
	p := mirrorOf(s, "node", "node-uid")
	if len(s.Annotations) != len(before.Annotations) {
		t.Error("the static pod was changed")
	}
	if p.UID != "" || p.Spec.NodeName != "node" || p.Annotations[mirrorAnnotation] != "h1" ||
		p.Annotations["kubernetes.io/config.source"] != "file" ||
		p.Annotations["kubernetes.io/config.hash"] != "h1" || p.Labels["app"] != "web" {
		t.Errorf("%+v", p.ObjectMeta)
	}
	if o := p.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].APIVersion != "v1" || o[0].Name != "node" ||
		o[0].UID != "node-uid" ||
		o[0].Controller == nil || !*o[0].Controller || o[0].BlockOwnerDeletion != nil {
		t.Errorf("%+v", o)
	}
}

// A mirror pod rejected for its references does not point to the node's credentials.
func TestAMirrorPodThatRefersToObjects(t *testing.T) {
	for words, want := range map[string]bool{
		"a mirror pod may not reference secrets":                                             true,
		"a mirror pod may not reference configmaps":                                          true,
		`node "node" can not create pods that reference configmaps`:                          true,
		`node "node" can only create pods with spec.nodeName set to itself`:                  false,
		`User "system:anonymous" cannot create resource "pods" in API group "" in "default"`: false,
	} {
		b := aMachine()
		b.setDesired(staticWanted(static("web", "h1"), nil))
		b.handleResult(noon, failing(only(t, b, noon), apierrors.NewForbidden(podResource, "web", errors.New(words))))
		said := b.troubles()
		if len(said) != 1 || !strings.Contains(said[0].What, words) ||
			strings.Contains(said[0].What, "The static pod runs all the same") != want ||
			strings.Contains(said[0].What, "the kubeconfig's user") == want {
			t.Errorf("%s: said %v", words, said)
		}
	}
}

// The hash of a static pod that sets its own UID is that UID. Its mirror pod is also compared by contents.
func TestStale_FixedUID(t *testing.T) {
	const fixed, computed = "11111111-2222-3333-4444-555555555555", "0123456789abcdef0123456789abcdef"
	edit := func(p *v1.Pod) { p.Spec.Containers = []v1.Container{{Name: "main", Args: []string{"sleep", "3605"}}} }
	seen := func(p *v1.Pod) { p.Annotations[manifest.FirstSeenAnnotation] = "later" }
	kubelets := func(m *v1.Pod) { delete(m.Annotations, contentsAnnotation) }
	for name, c := range map[string]struct {
		hash         string
		mirror, edit func(*v1.Pod)
		stale        bool
	}{
		"unchanged":                 {fixed, nil, nil, false},
		"seen later":                {fixed, nil, seen, false},
		"another command":           {fixed, nil, edit, true},
		"made by a kubelet":         {fixed, kubelets, nil, true},
		"computed UID":              {computed, nil, nil, false},
		"computed UID of a kubelet": {computed, kubelets, nil, false},
	} {
		m, s := mirror("web", c.hash, "u"), static("web", c.hash)
		if c.mirror != nil {
			c.mirror(m)
		}
		if c.edit != nil {
			c.edit(s)
		}
		if got := stale(m, s, "node-uid"); got != "" != c.stale {
			t.Errorf("%s: got %q, want stale: %v", name, got, c.stale)
		}
	}
}

// A manifest copied from a mirror pod has the contents annotation, which is not part of the static pod.
func TestStale_CopiedContentsHash(t *testing.T) {
	for _, uid := range []string{"11111111-2222-3333-4444-555555555555", "0123456789abcdef0123456789abcdef"} {
		s, plain := static("web", uid), static("web", uid)
		s.Annotations[contentsAnnotation] = "copied"
		m := mirrorOf(s, "node", "node-uid")
		if got := stale(m, s, "node-uid"); got != "" {
			t.Errorf("UID %s: a new mirror pod is stale: %s", uid, got)
		}
		if got := stale(m, plain, "node-uid"); got != "" {
			t.Errorf("UID %s: the mirror pod is stale without the copied annotation: %s", uid, got)
		}
	}
}

// The mirror pod of a pod with an unreadable manifest is kept. Without a mirror pod, none is created.
func TestEvaluate_KeptMirror(t *testing.T) {
	for _, objects := range [][]*v1.Pod{nil, {mirror("web", "h1", "u")}} {
		b := aMachine()
		b.sourcesSynced = true
		b.observe(messages.APIPodsObserved{At: noon, Pods: objects})
		b.setDesired(messages.PodStatusWanted{UID: "h1", Pod: static("web", "h1"), Static: true, Kept: true})
		none(t, b, noon)
	}
}

func TestALifeOfAMirrorPod(t *testing.T) {
	m := newModel()
	b := newMachine("node", func() float64 { return 1 })
	b.observe(messages.APIPodsObserved{At: noon})
	web := static("web", "h1")
	b.setDesired(staticWanted(web, nil))
	none(t, b, noon) // the node has no UID yet
	b.register(&v1.Node{})
	none(t, b, noon)
	node := &v1.Node{}
	node.UID = "node-uid"
	b.register(node)
	do := func(want verb) *job {
		t.Helper()
		j := only(t, b, noon)
		if j.verb != want {
			t.Fatalf("%s, want %s", j.verb, want)
		}
		b.handleResult(noon, m.answered(t, j))
		return j
	}
	do(createMirror)
	none(t, b, noon)
	b.setDesired(staticWanted(web, statusOf(true, 0)))
	do(patchStatus) // before it is observed
	b.observe(messages.APIPodsObserved{At: noon})
	none(t, b, noon)
	b.observe(messages.APIPodsObserved{Pods: m.list(), At: noon})
	none(t, b, noon)
	if got := m.pods["default/web"]; !ready(&got.Status) || got.Status.ObservedGeneration != 0 {
		t.Errorf("the mirror pod says %+v", got.Status)
	}

	// Another client deletes it, gracefully.
	p := m.pods["default/web"].DeepCopy()
	p.DeletionTimestamp = new(at(1))
	m.put(p)
	b.observe(messages.APIPodsObserved{Pods: m.list(), At: noon})
	do(deleteMirror)
	do(createMirror)
	do(patchStatus)
	b.observe(messages.APIPodsObserved{At: noon}) // in between
	none(t, b, noon)
	b.observe(messages.APIPodsObserved{Pods: m.list(), At: noon})
	none(t, b, noon)

	// Then with force.
	m.remove(m.pods["default/web"])
	b.observe(messages.APIPodsObserved{Pods: m.list(), At: noon})
	do(createMirror)
	do(patchStatus)
	b.observe(messages.APIPodsObserved{Pods: m.list(), At: noon})

	// The manifest changes: the old pod ends, while the new one waits.
	two := static("web", "h2")
	b.setDesired(staticWanted(two, nil))
	none(t, b, noon)
	over := staticWanted(web, statusOf(false, 0))
	over.Over = true
	b.setDesired(over)
	do(deleteMirror)
	do(createMirror)
	if got := m.pods["default/web"].Annotations[mirrorAnnotation]; got != "h2" {
		t.Errorf("it stands for %s", got)
	}
	b.observe(messages.APIPodsObserved{Pods: m.list(), At: noon})

	// It is removed once every source has reported.
	b.replaceDesired(messages.PodStatusesWanted{})
	none(t, b, noon)
	b.replaceDesired(messages.PodStatusesWanted{Heard: true})
	_, again := b.take(noon)
	j := only(t, b, again)
	if j.verb != deleteMirror {
		t.Fatalf("%+v", j)
	}
	b.handleResult(again, m.answered(t, j))
	b.observe(messages.APIPodsObserved{At: again})
	none(t, b, again)
	if len(m.pods)+len(b.lines) != 0 {
		t.Errorf("left are %d pods and %d lines", len(m.pods), len(b.lines))
	}
}

func TestMirrorPod_OutdatedIsReplaced(t *testing.T) {
	for name, change := range map[string]func(*v1.Pod){
		"another hash": func(p *v1.Pod) { p.Annotations[mirrorAnnotation] = "h0" },
		"spec":         func(p *v1.Pod) { p.Generation = 2 },
		"label":        func(p *v1.Pod) { p.Labels = map[string]string{"app": "other"} },
		"owner":        func(p *v1.Pod) { p.OwnerReferences[0].UID = "another-node" },
		"deleted":      func(p *v1.Pod) { p.DeletionTimestamp = new(at(0)) },
		"":             func(p *v1.Pod) { p.Labels = map[string]string{"app": "web", "more": "yes"} },
	} {
		p := mirror("web", "h1", "m")
		change(p)
		b := aMachine(p)
		b.setDesired(staticWanted(static("web", "h1"), nil))
		jobs, _ := b.take(noon)
		if (name == "") != (len(jobs) == 0) {
			t.Errorf("%q: %v", name, jobs)
		}
		if len(jobs) == 1 && (jobs[0].verb != deleteMirror || jobs[0].uid != "m" || jobs[0].why == "") {
			t.Errorf("%q: %+v", name, jobs[0])
		}
	}
}

// A pod that is Failed or Succeeded at the API server never runs again there. A static pod that does gets a new mirror pod.
func TestMirrorPod_OfARerunStaticPod(t *testing.T) {
	p := mirror("web", "h1", "m")
	p.Status.Phase = v1.PodSucceeded
	b := aMachine(p)
	b.setDesired(staticWanted(static("web", "h1"), statusOf(true, 0)))
	if j := only(t, b, noon); j.verb != deleteMirror || j.uid != "m" {
		t.Errorf("%+v", j)
	}
}

// Another client changes each mirror pod as soon as it is created. The recreation backs off.
func TestAMirrorPodThatIsChangedEachTime(t *testing.T) {
	m := newModel()
	b := aMachine()
	b.setDesired(staticWanted(static("web", "h1"), nil))
	made := 0
	for now := noon; now.Before(noon.Add(time.Hour)); {
		jobs, again := b.take(now)
		for _, j := range jobs {
			a := m.answered(t, j)
			b.handleResult(now, a)
			if j.verb == createMirror {
				made++
				p := m.pods["default/web"].DeepCopy()
				p.Labels = nil
				m.put(p)
			}
			b.observe(messages.APIPodsObserved{Pods: m.list(), At: now})
		}
		if len(jobs) == 0 {
			now = again
		}
	}
	if made < 5 || made > 300 {
		t.Errorf("made %d times within the hour", made)
	}
}

// Another client deletes each mirror pod as soon as it is created, gracefully or with force. The recreation backs off, with a
// bounded delay.
func TestAMirrorPodThatIsDeletedEachTime(t *testing.T) {
	for _, gently := range []bool{true, false} {
		m := newModel()
		b := aMachine()
		b.setDesired(staticWanted(static("web", "h1"), nil))
		var made []time.Time
		for now := noon; now.Before(noon.Add(time.Hour)); {
			jobs, again := b.take(now)
			for _, j := range jobs {
				b.handleResult(now, m.answered(t, j))
				b.observe(messages.APIPodsObserved{Pods: m.list(), At: now})
				if j.verb != createMirror {
					continue
				}
				made = append(made, now)
				p := m.pods["default/web"].DeepCopy()
				if p.DeletionTimestamp = new(at(1)); gently {
					m.put(p)
				} else {
					m.remove(p)
				}
				b.observe(messages.APIPodsObserved{Pods: m.list(), At: now})
			}
			if len(jobs) == 0 {
				now = again
			}
		}
		if len(made) < 120 || len(made) > 300 || !made[2].Equal(noon) {
			t.Errorf("gently %v: made %d times within the hour, first at %v", gently, len(made), made[:4])
		}
		for i := 1; i < len(made); i++ {
			if made[i].Sub(made[i-1]) > 2*makeMost {
				t.Errorf("gently %v: it was away from %s to %s", gently, made[i-1], made[i])
			}
		}
	}
}

// A pod of that name that is not this node's mirror pod is left alone, and reported.
func TestANameThatIsTaken(t *testing.T) {
	m := newModel()
	foreign := object("web", "foreign")
	m.put(foreign)
	b := aMachine(m.list()...)
	b.setDesired(staticWanted(static("web", "h1"), statusOf(true, 0)))
	now := noon
	for range 10 {
		j := only(t, b, now)
		if j.verb != createMirror {
			t.Fatalf("%+v", j)
		}
		b.handleResult(now, m.answered(t, j))
		_, now = b.take(now)
	}
	now = now.Add(-1)
	if got := b.troubles(); len(got) != 1 || got[0].Pod != "default/web" {
		t.Errorf("health says %v", got)
	}
	m.remove(foreign)
	b.observe(messages.APIPodsObserved{Pods: m.list(), At: now})
	b.handleResult(now, m.answered(t, only(t, b, now)))
	if !isMirror(m.pods["default/web"]) || len(b.troubles()) != 0 {
		t.Errorf("it was not made when the name was free: %v", b.troubles())
	}
}

func TestMirrorPodsAreCounted(t *testing.T) {
	if n := mirrorPods([]*v1.Pod{mirror("a", "h", "1"), {}, mirror("b", "h", "2")}); n != 2 {
		t.Errorf("%v", n)
	}
}
