package volumestest

import (
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// Pods is the actor of volumes under test. It sends the messages of pods and collects the answers.
type Pods struct {
	*supervisortest.Kit
	RootDir string
}

// Tell sends a message of a pod, does all work but the wait for drivers, and returns the answers.
func (p Pods) Tell(uid string, msg any) []any {
	p.Send(messages.PodAddress(uid), msg)
	return p.Answers(uid)
}

// Answers does all work but the wait for drivers, and returns the messages to the pod.
func (p Pods) Answers(uid string) (toPod []any) {
	p.Settle(false)
	for _, sent := range p.Take() {
		if sent.To == messages.PodAddress(uid) {
			toPod = append(toPod, sent.Msg)
		}
	}
	return toPod
}

// Settle does all work. With news it also does the wait for drivers, once.
func (p Pods) Settle(news bool) {
	for {
		i := slices.IndexFunc(p.Work, func(w supervisors.Work) bool { return news || w.Name != "AwaitDrivers" })
		if i < 0 {
			return
		}
		w := p.Work[i]
		p.Work = slices.Delete(p.Work, i, i+1)
		news = news && w.Name != "AwaitDrivers"
		p.RunOne(w)
	}
}

// Unmounted requests the removal of a pod's volumes and returns the answer.
func (p Pods) Unmounted(uid string) messages.VolumesUnmounted {
	p.TB.Helper()
	got := p.Tell(uid, messages.UnmountVolumes{UID: uid, Remove: true})
	if len(got) != 1 {
		p.TB.Fatalf("got %+v, want one answer", got)
	}
	m, ok := got[0].(messages.VolumesUnmounted)
	if !ok {
		p.TB.Fatalf("got %+v, want VolumesUnmounted", got[0])
	}
	return m
}

// Pod returns a path in the folder of pods.
func (p Pods) Pod(elements ...string) string {
	return filepath.Join(append([]string{p.RootDir, "pods"}, elements...)...)
}

// APIPodWith returns a pod of the API server.
func APIPodWith(uid string, volumes ...v1.Volume) *v1.Pod {
	pod := InNamespace(PodWith(uid, volumes...))
	pod.Annotations = map[string]string{objectset.SourceAnnotation: objectset.APISource}
	return pod
}
