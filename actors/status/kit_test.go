package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/playlet-dev/playlet/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))
}

func cond(t v1.PodConditionType, status v1.ConditionStatus, since int) v1.PodCondition {
	return v1.PodCondition{Type: t, Status: status, LastTransitionTime: at(since), ObservedGeneration: 1}
}

func running(name string, restarts int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, Ready: true, RestartCount: restarts,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at(1)}}}
}

func exited(name string, code int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code,
		FinishedAt: at(2)}}}
}

func waiting(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name,
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
}

// object returns a pod of the API server without a status.
func object(name, uid string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), Generation: 1, ResourceVersion: "1"},
		Spec: v1.PodSpec{NodeName: "node", RestartPolicy: v1.RestartPolicyAlways,
			Containers: []v1.Container{{Name: "main", Image: "i"}}},
		Status: v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort,
			Conditions: []v1.PodCondition{cond(v1.PodScheduled, v1.ConditionTrue, -5)}},
	}
}

// statusOf returns the agent's status of a running pod.
func statusOf(isReady bool, restarts int32) *v1.PodStatus {
	word := v1.ConditionFalse
	if isReady {
		word = v1.ConditionTrue
	}
	start := at(0)
	return &v1.PodStatus{
		Phase: v1.PodRunning, ObservedGeneration: 1, QOSClass: v1.PodQOSBestEffort, StartTime: &start, HostIP: "192.0.2.7",
		HostIPs: []v1.HostIP{{IP: "192.0.2.7"}}, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}},
		Conditions: []v1.PodCondition{
			cond(v1.PodReadyToStartContainers, v1.ConditionTrue, 0), cond(v1.PodInitialized, v1.ConditionTrue, 0),
			cond(v1.PodReady, word, 3), cond(v1.ContainersReady, word, 3), cond(v1.PodScheduled, v1.ConditionTrue, 0),
		},
		ContainerStatuses: []v1.ContainerStatus{running("main", restarts)},
	}
}

func static(name, hash string) *v1.Pod {
	p := object(name, hash)
	p.Generation, p.ResourceVersion, p.Status = 0, "", v1.PodStatus{}
	p.Labels = map[string]string{"app": name}
	p.Annotations = map[string]string{"kubernetes.io/config.hash": hash, "kubernetes.io/config.source": "file"}
	return p
}

func mirror(name, hash, uid string) *v1.Pod {
	p := mirrorOf(static(name, hash), "node", "node-uid")
	p.UID, p.Generation, p.ResourceVersion = types.UID(uid), 1, "1"
	p.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort}
	return p
}

// model is an API server's pods, by namespace and name.
type model struct {
	pods    map[string]*v1.Pod
	version int
	uids    int
}

func newModel() *model { return &model{pods: map[string]*v1.Pod{}} }

func (m *model) put(p *v1.Pod) {
	m.version++
	p = p.DeepCopy()
	p.ResourceVersion = strconv.Itoa(m.version)
	m.pods[p.Namespace+"/"+p.Name] = p
}

func (m *model) remove(p *v1.Pod) {
	m.version++
	delete(m.pods, p.Namespace+"/"+p.Name)
}

// list returns the pods that a watch would deliver.
func (m *model) list() []*v1.Pod {
	out := make([]*v1.Pod, 0, len(m.pods))
	for _, p := range m.pods {
		out = append(out, p)
	}
	return out
}

var podResource = schema.GroupResource{Resource: "pods"}

// do executes one write as the API server does.
func (m *model) do(t testing.TB, j *job) (*v1.Pod, error) {
	p := m.pods[j.namespace+"/"+j.name]
	switch {
	case j.verb == createMirror && p != nil:
		return nil, apierrors.NewAlreadyExists(podResource, j.name)
	case j.verb == createMirror:
		m.uids++
		p = j.mirror.DeepCopy()
		p.UID, p.Generation, p.Status = types.UID(fmt.Sprintf("made-%d", m.uids)), 1,
			v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort}
		m.put(p)
		return m.pods[j.namespace+"/"+j.name], nil
	case p == nil:
		return nil, apierrors.NewNotFound(podResource, j.name)
	case p.UID != j.uid:
		return nil, apierrors.NewConflict(podResource, j.name, errors.New("the UID is another"))
	case j.verb == patchStatus:
		m.put(patched(t, p, j))
		return m.pods[j.namespace+"/"+j.name], nil
	}
	if len(p.Finalizers) == 0 {
		m.remove(p)
	} else {
		held := p.DeepCopy()
		held.DeletionTimestamp = &metav1.Time{Time: noon}
		m.put(held)
	}
	return nil, nil
}

// patched applies the patch of a job, as it goes over the wire.
func patched(t testing.TB, p *v1.Pod, j *job) *v1.Pod {
	t.Helper()
	patch, err := patchOf(j.uid, j.from, j.to)
	if err != nil {
		t.Fatal(err)
	}
	was, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	is, err := strategicpatch.StrategicMergePatch(was, patch, v1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	out := &v1.Pod{}
	if err := json.Unmarshal(is, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// answered returns the model's answer.
func (m *model) answered(t testing.TB, j *job) answer {
	p, err := m.do(t, j)
	f, wait := read(j.verb, err)
	return answer{job: j, pod: p, err: err, outcome: f, retryAfter: wait}
}

func failing(j *job, err error) answer {
	f, wait := read(j.verb, err)
	return answer{job: j, err: err, outcome: f, retryAfter: wait}
}

func code(n int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: n,
		Reason: map[int32]metav1.StatusReason{
			http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
			http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
			http.StatusInternalServerError: metav1.StatusReasonInternalError,
			http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable, http.StatusConflict: metav1.StatusReasonConflict,
			http.StatusUnprocessableEntity: metav1.StatusReasonInvalid, http.StatusNotFound: metav1.StatusReasonNotFound,
		}[n], Message: "said no"}}
}

// aMachine returns a machine that knows the node and the API server's pods.
func aMachine(pods ...*v1.Pod) *machine {
	b := newMachine("node", func() float64 { return 1 })
	b.nodeUID = "node-uid"
	b.observe(messages.APIPodsObserved{Pods: pods, At: noon})
	return b
}

// only returns the single job.
func only(t *testing.T, b *machine, now time.Time) *job {
	t.Helper()
	jobs, _ := b.take(now)
	if len(jobs) != 1 {
		t.Fatalf("%d writes, want one: %+v", len(jobs), jobs)
	}
	return jobs[0]
}

func none(t *testing.T, b *machine, now time.Time) {
	t.Helper()
	if jobs, _ := b.take(now); len(jobs) != 0 {
		t.Fatalf("there is nothing to write, and this is: %+v", jobs[0])
	}
}

func desired(p *v1.Pod, s *v1.PodStatus) messages.PodStatusWanted {
	return messages.PodStatusWanted{UID: string(p.UID), Pod: p, Status: s}
}

func staticWanted(p *v1.Pod, s *v1.PodStatus) messages.PodStatusWanted {
	w := desired(p, s)
	w.Static = true
	return w
}
