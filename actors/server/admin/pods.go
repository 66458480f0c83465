package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/explain"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/messages"
)

// pods answers GET /v1/pods[?watch=true][&namespace=N][&name=N][&brief=true].
func (h *handlers) pods(w http.ResponseWriter, r *http.Request) error {
	var watch, brief bool
	var chosen filter
	if err := params(r, api.Params{
		"watch": &watch, "brief": &brief, "namespace": &chosen.namespace, "name": &chosen.name,
	}); err != nil {
		return err
	}
	view := podView
	if brief {
		view = briefView
	}
	if watch {
		return h.watchPods(w, r, chosen, view)
	}
	now := h.conf.Board.Now()
	out := api.Pods{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		Metadata: metav1.ListMeta{ResourceVersion: strconv.FormatUint(now.Version, 10)},
		At:       now.At, Pods: []api.Pod{}, Node: h.nodeView(now),
	}
	if h.conf.Registered != nil {
		out.Registration = h.conf.Registered()
	}
	for _, p := range chosen.choose(now) {
		pod := view(p)
		pod.CPUs = h.exclusiveCPUs(p.Pod)
		out.Pods = append(out.Pods, pod)
	}
	return answer(w, out)
}

// exclusiveCPUs returns the CPUs that the containers of a pod have to themselves, by name.
func (h *handlers) exclusiveCPUs(pod *v1.Pod) map[string]string {
	if h.conf.ExclusiveCPUs == nil {
		return nil
	}
	out := map[string]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		var set []int
		for _, id := range h.conf.ExclusiveCPUs(string(pod.UID), c.Name) {
			set = append(set, int(id))
		}
		if len(set) > 0 {
			out[c.Name] = cpuset.New(set...).String()
		}
	}
	return out
}

// podView returns the shown form of a pod.
func podView(p *board.Pod) api.Pod {
	shown := containers.Object(p)
	shown.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	out := api.Pod{Pod: shown, PodState: api.PodState{
		Source: p.Source, Phase: p.Phase, Ending: p.Ending, Waiting: reason(p.Waiting), Quarantine: quarantine(p.Quarantine),
		Cause: explain.Cause(p),
	}}
	out.State = cmp.Or(api.Summarize(&out).Status, string(v1.PodPending))
	return out
}

// briefView returns podView without fields that may hold secrets: the spec only has the names of containers, and the metadata
// only identifies the pod.
func briefView(p *board.Pod) api.Pod {
	out := podView(p)
	out.Pod = &v1.Pod{TypeMeta: out.TypeMeta, Status: out.Status, ObjectMeta: metav1.ObjectMeta{
		Namespace: out.Namespace, Name: out.Name, UID: out.UID, Labels: out.Labels,
		CreationTimestamp: out.CreationTimestamp, DeletionTimestamp: out.DeletionTimestamp,
	}}
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		out.Spec.InitContainers = append(out.Spec.InitContainers, v1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy})
	}
	for i := range p.Pod.Spec.Containers {
		out.Spec.Containers = append(out.Spec.Containers, v1.Container{Name: p.Pod.Spec.Containers[i].Name})
	}
	return out
}

func reason(r *messages.Reason) *api.Reason {
	if r == nil || r.Code == "" {
		return nil
	}
	return &api.Reason{Code: r.Code, Message: r.Message, Permanent: r.Permanent, RetryAt: r.RetryAt, Since: r.Since}
}

func quarantine(q *messages.ChildQuarantined) *api.Quarantine {
	if q == nil {
		return nil
	}
	return &api.Quarantine{Reason: q.Reason, Until: q.Until}
}

func (h *handlers) nodeView(s *board.Snapshot) api.Node {
	out := api.Node{Problems: s.Problems, Runtime: h.conf.Runtime(), Unheard: s.Unheard, Audited: s.Audited}
	for _, u := range s.Under {
		out.Short = append(out.Short, explain.Short(u))
	}
	return out
}

// filter selects pods; an empty field selects all.
type filter struct{ namespace, name string }

func (f filter) match(p *v1.Pod) bool {
	return (f.namespace == "" || f.namespace == p.Namespace) && (f.name == "" || f.name == p.Name)
}

// choose lists the matching pods of a snapshot.
func (f filter) choose(s *board.Snapshot) []*board.Pod {
	var out []*board.Pod
	for i := range s.Pods {
		if f.match(s.Pods[i].Pod) {
			out = append(out, &s.Pods[i])
		}
	}
	return out
}

// explain answers GET /v1/explain/node, and GET /v1/explain/pod/{name}[?namespace=N] with all pods of the name.
func (h *handlers) explain(w http.ResponseWriter, r *http.Request) error {
	now, name, namespace := h.conf.Board.Now(), r.PathValue("name"), r.URL.Query().Get("namespace")
	out := api.Explanations{At: now.At}
	switch kind := r.PathValue("kind"); {
	case kind == "node" && name == "":
		out.Items = []api.Explanation{{Explanation: explain.Node(h.conf.Health(r.Context()), now)}}
		return answer(w, out)
	case kind != "pod" || name == "":
		return refuse(http.StatusNotFound, "only node and pod/NAME can be explained")
	}
	for _, p := range slices.Concat(now.Pods, now.Over) {
		if !(filter{namespace, name}).match(p.Pod) {
			continue
		}
		e := api.Explanation{Explanation: explain.Pod(&p), State: podView(&p).State}
		if tree := h.conf.Tree(); tree != nil {
			e.Messages = tree.Recorder().Last(string(p.Pod.UID))
		}
		out.Items = append(out.Items, e)
	}
	if len(out.Items) == 0 {
		absent, known := explain.Absent(namespace, name, now)
		if !known {
			where := ""
			if namespace != "" {
				where = fmt.Sprintf(" in namespace %q", namespace)
			}
			return refuse(http.StatusNotFound, "there is no pod %q%s", name, where)
		}
		out.Items = []api.Explanation{{Explanation: absent}}
	}
	return answer(w, out)
}
