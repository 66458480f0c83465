package submit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/messages"
)

// objectPrefix begins the names of this package's files in the folder of objects: one file per object. The objects actor
// reads them like any others.
const objectPrefix = "submitted-"

// maxObject bounds the bytes read from such a file.
const maxObject = manifest.MaxBytes

// object is a ConfigMap or a Secret to write. Its content is in no message.
type object struct {
	kind, namespace, name string
	text                  []byte
}

// objectsOf makes files of the objects of a manifest.
func objectsOf(in manifest.Objects) (out []object, err error) {
	add := func(kind string, meta *metav1.ObjectMeta, value any) {
		text, failed := json.Marshal(value)
		err = errors.Join(err, failed)
		out = append(out, object{kind, meta.Namespace, meta.Name, text})
	}
	for _, o := range in.ConfigMaps {
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
		add(o.Kind, &o.ObjectMeta, o)
	}
	for _, o := range in.Secrets {
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
		add(o.Kind, &o.ObjectMeta, o)
	}
	return out, err
}

// String returns the object's name in messages.
func (o object) String() string { return o.kind + " " + o.namespace + "/" + o.name }

func (o object) same(other object) bool { return o.String() == other.String() }

func (o object) file(dir string) string {
	sum := sha256.Sum256([]byte(o.kind + "/" + o.namespace + "/" + o.name))
	return filepath.Join(dir, objectPrefix+hex.EncodeToString(sum[:16])+suffix)
}

func (o object) submitted(change messages.SubmissionChange) messages.SubmittedPod {
	return messages.SubmittedPod{Kind: o.kind, Namespace: o.namespace, Name: o.name, PodName: o.name, Change: change}
}

// objectsRefused returns the reason why the objects are rejected, or nil. Without replace, none may exist in another version.
func (j *journal) objectsRefused(wanted []object, replace bool) *messages.SubmissionRefused {
	if len(wanted) == 0 {
		return nil
	}
	if j.opts.ObjectDir == "" {
		return refused(messages.RefusedInvalid, messages.ManifestProblem{Field: "kind", Message: fmt.Sprintf(
			"%s: this agent has no folder for ConfigMaps and Secrets; start it with --object-dir=FOLDER", wanted[0])})
	}
	for _, o := range wanted {
		old, err := atomicfile.ReadFile(o.file(j.opts.ObjectDir), maxObject)
		switch {
		case replace, errors.Is(err, fs.ErrNotExist):
		case err != nil:
			failed := j.refusal(err)
			return &failed
		case !bytes.Equal(old, o.text):
			return refused(messages.RefusedConflict, messages.ManifestProblem{Field: "metadata.name", Message: fmt.Sprintf(
				"another version of %s was submitted before", o)})
		}
	}
	if _, err := os.ReadDir(j.opts.ObjectDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		failed := j.refusal(err)
		return &failed
	}
	for path, data := range manifestsIn(j.opts.ObjectDir) {
		if strings.HasPrefix(filepath.Base(path), objectPrefix) {
			continue
		}
		there, _ := manifest.LoadObjects(path, data)
		others, err := objectsOf(there)
		if err != nil {
			continue
		}
		for _, o := range wanted {
			if slices.ContainsFunc(others, o.same) {
				return refused(messages.RefusedConflict, messages.ManifestProblem{Field: "metadata.name", Message: fmt.Sprintf(
					"%s is in %s already: change it there, or choose another name", o, path)})
			}
		}
	}
	return nil
}

// putObject writes one object, unless it is unchanged.
func (j *journal) putObject(o object, dryRun bool) (messages.SubmissionChange, error) {
	path, change := o.file(j.opts.ObjectDir), messages.PodConfigured
	old, err := atomicfile.ReadFile(path, maxObject)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		change = messages.PodCreated
	case err == nil && bytes.Equal(old, o.text):
		return messages.PodUnchanged, nil
	}
	if dryRun {
		return change, nil
	}
	if err := os.MkdirAll(j.opts.ObjectDir, 0o700); err != nil {
		return "", err
	}
	return change, atomicfile.WriteFile(path, o.text, 0o600)
}

// withdrawObject removes a submitted object.
func (j *journal) withdrawObject(m messages.WithdrawPod) any {
	o := object{kind: m.Kind, namespace: cmp.Or(m.Namespace, v1.NamespaceDefault), name: m.Name}
	path := o.file(j.opts.ObjectDir)
	if _, err := os.Lstat(path); j.opts.ObjectDir == "" || errors.Is(err, fs.ErrNotExist) {
		return messages.SubmissionRefused{Why: messages.RefusedUnknown,
			Message: fmt.Sprintf("no %s was submitted", o)}
	}
	if m.DryRun {
		return messages.PodWithdrawn{Pod: o.submitted(messages.PodDeleted)}
	}
	if err := atomicfile.Remove(path); err != nil {
		return messages.SubmissionRefused{Why: messages.RefusedFailure, Message: err.Error()}
	}
	return messages.PodWithdrawn{Pod: o.submitted(messages.PodDeleted)}
}

// listObjects lists the submitted objects. It omits unreadable files, which the objects actor reports.
func (j *journal) listObjects() any {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := messages.SubmittedObjectsReported{Objects: []messages.SubmittedObject{}}
	files, err := os.ReadDir(j.opts.ObjectDir)
	if err != nil && j.opts.ObjectDir != "" && !errors.Is(err, fs.ErrNotExist) {
		return j.refusal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if !strings.HasPrefix(f.Name(), objectPrefix) || err != nil {
			continue
		}
		text, err := atomicfile.ReadFile(filepath.Join(j.opts.ObjectDir, f.Name()), maxObject)
		var o struct { // of both kinds
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Data, BinaryData  map[string]json.RawMessage
			StringData        map[string]json.RawMessage
		}
		if err != nil || json.Unmarshal(text, &o) != nil {
			continue
		}
		keys := map[string]json.RawMessage{}
		for _, values := range []map[string]json.RawMessage{o.Data, o.BinaryData, o.StringData} {
			maps.Copy(keys, values)
		}
		out.Objects = append(out.Objects, messages.SubmittedObject{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
			Keys: slices.Sorted(maps.Keys(keys)), Accepted: info.ModTime()})
	}
	slices.SortFunc(out.Objects, func(x, y messages.SubmittedObject) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name))
	})
	return out
}
