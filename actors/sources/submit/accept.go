package submit

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// submit accepts the pods of a manifest: all of them, or none when any is wrong. Only a disk that fails in the middle
// leaves some accepted, and then the answer names them.
func (j *journal) submit(m messages.SubmitPods, now time.Time) any {
	wanted, refusal := candidates(m, j.opts.Node.Manifest(manifest.SubmitSource, now))
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
	out := make([]messages.SubmittedPod, 0, len(wanted))
	for _, r := range wanted {
		old := j.records[r.key()]
		if old != nil && manifest.Same(old.Pod, r.Pod) {
			out = append(out, old.submitted(messages.PodUnchanged))
			continue
		}
		if err := j.put(r); err != nil {
			failed := j.refusal(err)
			failed.Accepted = out
			return failed
		}
		change := messages.PodCreated
		if old != nil {
			change = messages.PodConfigured
		}
		out = append(out, r.submitted(change))
	}
	return messages.PodsSubmitted{Pods: out}
}

// candidates reads a manifest. It is pure.
func candidates(m messages.SubmitPods, opts manifest.Options) ([]*record, *messages.SubmissionRefused) {
	documents := manifest.Decode("", m.Manifest)
	if len(documents) == 0 {
		return nil, &messages.SubmissionRefused{
			Why: messages.RefusedMalformed, Message: "the manifest is empty: it must have a Pod, or a list of Pods",
		}
	}
	pods, found := manifest.Load("", m.Manifest, opts)
	if len(found) > 0 {
		return nil, refusalOf(found)
	}
	if m.Name != "" && (len(pods) != 1 || documents[0].Pod.Name != m.Name || pods[0].Namespace != m.Namespace) {
		p := messages.ManifestProblem{
			Field: "metadata.name", Message: fmt.Sprintf("the manifest must be that of the one pod %s/%s", m.Namespace, m.Name),
		}
		return nil, refused(messages.RefusedMalformed, p)
	}
	var out []*record
	uids := map[string]bool{}
	for i, pod := range pods {
		if uid := string(pod.UID); uids[uid] {
			p := messages.ManifestProblem{
				Line: documents[i].Line("metadata.uid"), Pod: pod.Namespace + "/" + pod.Name, Field: "metadata.uid",
				Message: "another pod of this manifest has the same UID, " + uid,
			}
			return nil, refused(messages.RefusedInvalid, p)
		}
		uids[string(pod.UID)] = true
		r, err := newRecord(documents[i].Pod, pod, opts.NodeName, opts.Now)
		if err != nil {
			return nil, &messages.SubmissionRefused{Why: messages.RefusedMalformed, Message: err.Error()}
		}
		out = append(out, r)
	}
	return out, nil
}

// refused is the answer to a manifest with one problem.
func refused(why messages.Refusal, p messages.ManifestProblem) *messages.SubmissionRefused {
	return &messages.SubmissionRefused{Why: why, Message: p.Message, Problems: []messages.ManifestProblem{p}}
}

// refusalOf is the answer to a manifest with problems: those that name a field are about a pod, the others about the text.
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

// conflict says why r cannot be accepted beside what is there.
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
		p.Message = fmt.Sprintf("%s wants a pod %s/%s already: remove it there, or choose another name",
			source, pod.Namespace, pod.Name)
		if pod.Name != r.Pod.Name || pod.Namespace != r.Pod.Namespace {
			p.Field = "metadata.uid"
			p.Message = fmt.Sprintf("%s wants a pod %s/%s with the same UID, %s", source, pod.Namespace, pod.Name, pod.UID)
		}
		return p
	}
	return nil
}

// foreign is the pod that another source wants under the same name or UID, if one does.
func (j *journal) foreign(pod *v1.Pod) (messages.Address, *v1.Pod) {
	if j.opts.Board == nil {
		return "", nil
	}
	for _, p := range j.opts.Board.Now().Pods {
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

// withdraw forgets a pod. The name may be that of the manifest or that of the pod.
func (j *journal) withdraw(m messages.WithdrawPod) any {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return j.refusal(err)
	}
	r := j.find(m.Namespace, m.Name)
	if r == nil {
		return j.unknown(m.Namespace, m.Name)
	}
	if err := j.remove(r); err != nil {
		return j.refusal(err)
	}
	return messages.PodWithdrawn{Pod: r.submitted(messages.PodDeleted)}
}

func (j *journal) find(namespace, name string) *record {
	if r := j.records[key{namespace, name}]; r != nil {
		return r
	}
	short, ok := strings.CutSuffix(name, manifest.StaticName("", j.opts.Node.NodeName))
	if !ok {
		return nil
	}
	return j.records[key{namespace, short}]
}

func (j *journal) unknown(namespace, name string) messages.SubmissionRefused {
	for _, n := range []string{name, manifest.StaticName(name, j.opts.Node.NodeName)} {
		if source, pod := j.foreign(&v1.Pod{ObjectMeta: objectMeta(namespace, n)}); pod != nil {
			return messages.SubmissionRefused{Why: messages.RefusedConflict, Message: fmt.Sprintf(
				"pod %s/%s was not submitted: %s wants it; remove it there", pod.Namespace, pod.Name, source)}
		}
	}
	return messages.SubmissionRefused{
		Why: messages.RefusedUnknown, Message: fmt.Sprintf("no pod %s/%s was submitted", namespace, name),
	}
}

// list tells what was submitted.
func (j *journal) list(m messages.GetSubmissions) any {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return j.refusal(err)
	}
	out := messages.SubmissionsTold{Submissions: []messages.Submission{}}
	if m.Name != "" {
		r := j.find(m.Namespace, m.Name)
		if r == nil {
			return j.unknown(m.Namespace, m.Name)
		}
		out.Submissions = append(out.Submissions, r.view())
		return out
	}
	for _, r := range j.state().records {
		out.Submissions = append(out.Submissions, r.view())
	}
	return out
}
