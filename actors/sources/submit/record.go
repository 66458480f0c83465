package submit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/messages"
)

// recordVersion is the format version of record.
const recordVersion = 1

// suffix is the suffix of the journal's files.
const suffix = ".json"

// key is the name of a submission in its manifest.
type key struct{ namespace, name string }

// record is one accepted pod, and one file of the journal. Immutable.
type record struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	NodeName  string    `json:"nodeName"`
	Accepted  time.Time `json:"accepted"`
	// Manifest is the Pod as its author wrote it; Pod is the result of reading it. A version of the agent that reads
	// manifests differently thus keeps every accepted pod.
	Manifest json.RawMessage `json:"manifest"`
	Pod      *v1.Pod         `json:"pod"`

	note   string // part of the answer to the submission only
	former string // the pod's UID under an earlier name of the node, if it was made again
}

func (r *record) key() key { return key{r.Namespace, r.Name} }

// file returns the path of the record. Pod names may be longer than file names.
func (k key) file(dir string) string {
	sum := sha256.Sum256([]byte(k.namespace + "/" + k.name))
	return filepath.Join(dir, hex.EncodeToString(sum[:16])+suffix)
}

// newRecord returns the record of a pod that manifest.Load read from the author's manifest.
func newRecord(author, pod *v1.Pod, node string, now time.Time) (*record, error) {
	written := *author
	written.TypeMeta.APIVersion, written.TypeMeta.Kind = "v1", "Pod"
	raw, err := json.Marshal(&written)
	if err != nil {
		return nil, err
	}
	return &record{
		Namespace: pod.Namespace, Name: author.Name, NodeName: node, Accepted: now.UTC(), Manifest: raw, Pod: pod,
	}, nil
}

// loadRecord reads a file of the journal for the node of that name. Content that this package did not write for this file is
// damage. An error means that the file cannot be read now.
func loadRecord(path, node string) (r *record, damage, err error) {
	r = new(record)
	if err := atomicfile.Load(path, recordVersion, r); err != nil {
		if _, useless := errors.AsType[*atomicfile.UnreadableError](err); useless {
			return nil, err, nil
		}
		return nil, nil, err
	}
	return r, r.check(path, node), nil
}

// check compares a record with its file name, and makes its pod again if the node's name has changed.
func (r *record) check(path, node string) error {
	if r.Pod == nil || r.Name == "" || r.Namespace == "" || filepath.Base(r.key().file("")) != filepath.Base(path) {
		return errors.New("the pod in it is not the one of its file name")
	}
	if r.NodeName == node {
		if r.Pod.Namespace != r.Namespace || r.Pod.Name != manifest.StaticName(r.Name, node) {
			return fmt.Errorf("its pod is %s/%s", r.Pod.Namespace, r.Pod.Name)
		}
		return messages.CheckUID(string(r.Pod.UID))
	}
	pods, problems := manifest.Load(path, r.Manifest, manifest.Options{
		NodeName: node, Source: manifest.SubmitSource, Now: r.Accepted,
		Has: manifest.ObjectSources{Objects: true, Cluster: true}, // it was accepted once
	})
	if len(problems) > 0 {
		return problems[0]
	}
	if len(pods) != 1 || pods[0].Name != manifest.StaticName(r.Name, node) || pods[0].Namespace != r.Namespace {
		return errors.New("its manifest is not that of its pod")
	}
	if was := string(r.Pod.UID); was != string(pods[0].UID) {
		r.former = was
	}
	r.Pod, r.NodeName = pods[0], node
	return nil
}

func (r *record) submitted(change messages.SubmissionChange, note string) messages.SubmittedPod {
	return messages.SubmittedPod{Namespace: r.Namespace, Name: r.Name, PodName: r.Pod.Name, UID: string(r.Pod.UID),
		Change: change, Note: note}
}
