package submit

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// submit accepts the pods of a manifest: all, or none if any is invalid. Only a disk failure in the middle leaves some
// accepted. The answer names them then.
func (j *journal) submit(m messages.SubmitPods, now time.Time) any {
	wanted, objects, refusal := candidates(m, j.opts.Node.Manifest(manifest.SubmitSource, now))
	if refusal != nil {
		return *refusal
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return j.refusal(err)
	}
	for _, r := range wanted {
		if problem := j.conflict(r, m.Replace); problem != nil {
			return *refused(messages.RefusedConflict, *problem)
		}
	}
	if refusal := j.objectsRefused(objects, m.Replace); refusal != nil {
		return *refusal
	}
	out := make([]messages.SubmittedPod, 0, len(wanted)+len(objects))
	for _, o := range objects { // first, since pods wait for them
		change, err := j.putObject(o, m.DryRun)
		if err != nil {
			failed := j.refusal(err)
			failed.Accepted = out
			return failed
		}
		out = append(out, o.submitted(change))
	}
	for _, r := range wanted {
		done, err := j.accept(r, m.DryRun)
		if err != nil {
			failed := j.refusal(err)
			failed.Accepted = out
			return failed
		}
		out = append(out, done)
	}
	return messages.PodsSubmitted{Pods: out}
}

// accept records r unless it is unchanged. A dry run changes nothing, and returns both versions.
func (j *journal) accept(r *record, dryRun bool) (messages.SubmittedPod, error) {
	old := j.records[r.key()]
	change := messages.PodConfigured
	switch {
	case old == nil:
		change = messages.PodCreated
	case manifest.Same(old.Pod, r.Pod):
		change = messages.PodUnchanged
	}
	switch {
	case dryRun:
	case change == messages.PodUnchanged:
		return old.submitted(change, r.note), nil
	default:
		return r.submitted(change, r.note), j.put(r)
	}
	out := r.submitted(change, r.note)
	out.After = r.Manifest
	if old != nil {
		out.Before = old.Manifest
	}
	return out, nil
}

// candidates reads a manifest. It is pure.
func candidates(m messages.SubmitPods, opts manifest.Options) ([]*record, []object, *messages.SubmissionRefused) {
	s, found := manifest.LoadSubmission("", m.Manifest, opts)
	if len(found) > 0 {
		return nil, nil, refusalOf(found)
	}
	objects, err := objectsOf(s.Objects)
	switch {
	case err != nil:
		return nil, nil, &messages.SubmissionRefused{Why: messages.RefusedMalformed, Message: err.Error()}
	case len(s.Documents) == 0 && len(objects) == 0:
		return nil, nil, &messages.SubmissionRefused{
			Why: messages.RefusedMalformed, Message: "the manifest is empty: it must have a Pod, or a list of Pods",
		}
	case m.Name != "" && (len(objects) > 0 || len(s.Pods) != 1 || s.Documents[0].Pod.Name != m.Name ||
		s.Pods[0].Namespace != m.Namespace):
		p := messages.ManifestProblem{
			Field: "metadata.name", Message: fmt.Sprintf("the manifest must be that of the one pod %s/%s", m.Namespace, m.Name),
		}
		return nil, nil, refused(messages.RefusedMalformed, p)
	}
	var out []*record
	uids := map[string]bool{}
	for i, pod := range s.Pods {
		if uid := string(pod.UID); uids[uid] {
			p := messages.ManifestProblem{
				Line: s.Documents[i].Line("metadata.uid"), Pod: pod.Namespace + "/" + pod.Name, Field: "metadata.uid",
				Message: "another pod of this manifest has the same UID, " + uid,
			}
			return nil, nil, refused(messages.RefusedInvalid, p)
		}
		uids[string(pod.UID)] = true
		r, err := newRecord(s.Documents[i].Pod, pod, opts.NodeName, opts.Now)
		if err != nil {
			return nil, nil, &messages.SubmissionRefused{Why: messages.RefusedMalformed, Message: err.Error()}
		}
		r.note = s.Documents[i].Note
		out = append(out, r)
	}
	return out, objects, nil
}

// refused returns the answer to a manifest with one problem.
func refused(why messages.Refusal, p messages.ManifestProblem) *messages.SubmissionRefused {
	return &messages.SubmissionRefused{Why: why, Message: p.Message, Problems: []messages.ManifestProblem{p}}
}

// refusalOf returns the answer to a manifest with problems. Those with a field concern a pod, the others the text.
func refusalOf(found []manifest.Problem) *messages.SubmissionRefused {
	out := &messages.SubmissionRefused{Why: messages.RefusedInvalid, Problems: base.Problems(found)}
	var said []string
	for _, p := range out.Problems {
		if p.Field == "" {
			out.Why = messages.RefusedMalformed
		}
		text := p.Message
		if p.Field != "" {
			text = p.Field + ": " + text
		}
		said = append(said, text)
	}
	out.Message = "the manifest is refused: " + strings.Join(said, "; ")
	return out
}

// conflict returns the reason why r conflicts with an existing pod, or nil.
func (j *journal) conflict(r *record, replace bool) *messages.ManifestProblem {
	p := &messages.ManifestProblem{Pod: r.Pod.Namespace + "/" + r.Pod.Name, Field: "metadata.name"}
	old := j.records[r.key()]
	if old != nil && !replace && !manifest.Same(old.Pod, r.Pod) {
		p.Message = fmt.Sprintf("another version of pod %s/%s was submitted before; PUT replaces it", r.Namespace, r.Name)
		return p
	}
	for _, other := range j.records {
		if other.Pod.UID == r.Pod.UID && other.key() != r.key() {
			p.Field = "metadata.uid"
			p.Message = fmt.Sprintf("the submitted pod %s/%s has the same UID, %s", other.Namespace, other.Name, r.Pod.UID)
			return p
		}
	}
	if source, pod := j.foreign(r.Pod); pod != nil {
		from, remedy := j.origin(source, pod)
		p.Message = fmt.Sprintf("a pod %s/%s comes from %s already: %s, or choose another name", pod.Namespace, pod.Name, from,
			remedy)
		if pod.Name != r.Pod.Name || pod.Namespace != r.Pod.Namespace {
			p.Field = "metadata.uid"
			p.Message = fmt.Sprintf("pod %s/%s, which comes from %s, has the same UID, %s", pod.Namespace, pod.Name, from,
				pod.UID)
		}
		return p
	}
	return nil
}

func (j *journal) pods() []board.Pod {
	if j.opts.Board == nil {
		return nil
	}
	return j.opts.Board.Now().Pods
}

// foreign returns another source's pod with the same name or UID, if any.
func (j *journal) foreign(pod *v1.Pod) (messages.Address, *v1.Pod) {
	for _, p := range j.pods() {
		other := p.Pod
		if p.Source == "" || p.Source == messages.Submit || p.Ending != "" {
			continue
		}
		if other.UID == pod.UID || other.Namespace == pod.Namespace && other.Name == pod.Name {
			return p.Source, other
		}
	}
	return "", nil
}

// withdraw removes a pod. The name may be the manifest's or the pod's.
func (j *journal) withdraw(m messages.WithdrawPod) any {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m.Kind != "" {
		return j.withdrawObject(m)
	}
	if err := j.load(); err != nil {
		return j.refusal(err)
	}
	r := j.find(m.Namespace, m.Name, m.Exact)
	if r == nil {
		if pod := j.ending(m.Namespace, m.Name); pod != nil && m.Grace != nil {
			if !m.DryRun {
				j.departed.Add(j.opts.Clock.Now(), string(pod.UID))
				j.hurry(string(pod.UID), m.Grace)
			}
			return messages.PodWithdrawn{Pod: messages.SubmittedPod{Namespace: pod.Namespace, Name: m.Name, PodName: pod.Name,
				UID: string(pod.UID), Change: messages.PodHurried}}
		}
		if answer := j.withdrawSpared(m); answer != nil {
			return answer
		}
		if answer := j.withdrawDamaged(m); answer != nil {
			return answer
		}
		return j.unknown(m.Namespace, m.Name)
	}
	if !m.DryRun {
		if err := j.remove(r); err != nil {
			return j.refusal(err)
		}
		j.hurry(string(r.Pod.UID), m.Grace)
	}
	return messages.PodWithdrawn{Pod: r.submitted(messages.PodDeleted, "")}
}

// hurry records the grace period, in seconds, of a departed pod; nil is the pod's own.
func (j *journal) hurry(uid string, grace *int64) {
	if grace == nil {
		return
	}
	j.graces[uid] = *grace
	j.version++
	_ = j.saveDeparted() // the next check retries a failure
}

// ending returns the pod of that name that is ending because it was withdrawn, or because it left its manifest. Pods of the API
// server are hurried there.
func (j *journal) ending(namespace, name string) *v1.Pod {
	for _, p := range j.pods() {
		if p.Source != messages.APIServer && p.Ending != "" && p.Pod.Namespace == namespace &&
			(p.Pod.Name == name || p.Pod.Name == manifest.StaticName(name, j.opts.Node.NodeName)) {
			return p.Pod
		}
	}
	return nil
}

func (j *journal) find(namespace, name string, exact bool) *record {
	for _, k := range j.keys(namespace, name, exact) {
		if r := j.records[k]; r != nil {
			return r
		}
	}
	return nil
}

// keys returns the possible keys of a record by the manifest's name or, unless exact is set, the pod's.
func (j *journal) keys(namespace, name string, exact bool) []key {
	out := []key{{namespace, name}}
	if short, is := strings.CutSuffix(name, manifest.StaticName("", j.opts.Node.NodeName)); is && !exact {
		out = append(out, key{namespace, short})
	}
	return out
}

// origin returns the place that another source's pod comes from, and how to end the pod there.
func (j *journal) origin(source messages.Address, pod *v1.Pod) (from, remedy string) {
	switch path := j.staticFile(pod); {
	case source == messages.File && path != "":
		return "the manifest " + path, "remove that file"
	case source == messages.File:
		return "a manifest in " + j.opts.StaticPath, "remove it there"
	case source == messages.URL:
		return "the manifests of staticPodURL", "remove it there"
	default:
		return "the API server", fmt.Sprintf("use kubectl delete pod -n %s %s", pod.Namespace, pod.Name)
	}
}

func (j *journal) unknown(namespace, name string) messages.SubmissionRefused {
	for _, n := range []string{name, manifest.StaticName(name, j.opts.Node.NodeName)} {
		// No pod can have this UID.
		named := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: n, UID: "-"}}
		if source, pod := j.foreign(named); pod != nil {
			from, remedy := j.origin(source, pod)
			text := fmt.Sprintf("pod %s/%s was not submitted: it comes from %s; to end it, %s", pod.Namespace, pod.Name, from,
				remedy)
			return messages.SubmissionRefused{Why: messages.RefusedConflict, Message: text}
		}
	}
	return messages.SubmissionRefused{
		Why: messages.RefusedUnknown, Message: fmt.Sprintf("no pod %s/%s was submitted", namespace, name),
	}
}

// list returns the submissions.
func (j *journal) list(m messages.GetSubmissions) any {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return j.refusal(err)
	}
	records := j.state().records
	if m.Name != "" {
		r := j.find(m.Namespace, m.Name, false)
		if r == nil {
			return j.unknown(m.Namespace, m.Name)
		}
		records = []*record{r}
	}
	out := messages.SubmissionsReported{Submissions: []messages.Submission{}}
	for _, r := range records {
		out.Submissions = append(out.Submissions, messages.Submission{
			Namespace: r.Namespace, Name: r.Name, PodName: r.Pod.Name, UID: string(r.Pod.UID), Accepted: r.Accepted,
			Manifest: r.Manifest,
		})
	}
	return out
}
