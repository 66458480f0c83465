// Package pullrecord records on disk the credentials with which images were pulled, and decides from them which pods may use a
// present image. Folder and files are the kubelet's, so that either agent can use the other's records:
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2535-ensure-secret-pulled-images
package pullrecord

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/actors/images/pullauth"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
)

const (
	group     = "kubelet.config.k8s.io/"
	version   = group + "v1beta1"
	prefix    = "sha256-"
	nameBytes = len(prefix) + 2*sha256.Size
)

// Records are the records of one node. The methods read and write files, so call them outside mailboxes. Records are safe for
// concurrent use. The nil Records store nothing and are empty.
type Records struct {
	pulling, pulled string // folders
	mu              sync.Mutex
	underway        map[string]int  // pulls, by image
	unsettled       map[string]bool // images that an earlier pull may have completed
	// fresh has the time of the last pull of each record by this process, since the last Prune. Unlike the time in a record, it
	// is of the monotonic clock.
	fresh map[string]time.Time
}

// New returns the records in the kubelet's root folder, which must exist.
func New(rootDir string) *Records {
	dir := filepath.Join(rootDir, "image_manager")
	return &Records{pulling: filepath.Join(dir, "pulling"), pulled: filepath.Join(dir, "pulled"),
		underway: map[string]int{}, unsettled: map[string]bool{}, fresh: map[string]time.Time{}}
}

// count sets the metrics of the files on disk; the caller holds the lock.
func (r *Records) count() {
	for dir, g := range map[string]prometheus.Gauge{r.pulling: metrics.PullIntents, r.pulled: metrics.PulledRecords} {
		if files, err := os.ReadDir(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			g.Set(float64(len(files)))
		}
	}
}

// Record is the record of a present image.
type Record struct {
	// Ours means that this node pulled it for a pod, or may have. Other images were preloaded or imported.
	Ours bool
	// Credentials are the accepted credentials, by the repository as pods name it.
	Credentials map[string]kubeletconfig.ImagePullCredentials
	// Problem is the error of reading the record.
	Problem error
}

// Begin records that the image is about to be pulled. Until the end of the pull the image counts as pulled by this node, also
// after a crash. Each successful Begin must be followed by one Pulled or Failed.
func (r *Records) Begin(image string) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.count()
	if r.underway[image] == 0 {
		if r.begun(image) {
			r.unsettled[image] = true
		}
		for _, name := range spellings(image) {
			intent := kubeletconfig.ImagePullIntent{TypeMeta: typeMeta("ImagePullIntent"), Image: name}
			if err := write(filepath.Join(r.pulling, fileName(name)), intent); err != nil {
				return fmt.Errorf("could not note that it is pulled: %w", err)
			}
		}
	}
	r.underway[image]++
	return nil
}

// begun reports whether the start of a pull is recorded. The pull need not be in progress.
func (r *Records) begun(image string) bool {
	return slices.ContainsFunc(spellings(image), func(name string) bool {
		_, err := os.Lstat(filepath.Join(r.pulling, fileName(name)))
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// Failed ends a pull. settled means that this pull has certainly not completed the image.
func (r *Records) Failed(image string, settled bool) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.count()
	if !settled {
		r.unsettled[image] = true
	}
	return r.end(image)
}

// Pulled ends a pull of the image ref with a credential; nil for none. After an error, other pods must pull the image again.
func (r *Records) Pulled(image, ref string, with *pullauth.Credential, now time.Time) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.count()
	path := filepath.Join(r.pulled, fileName(ref))
	r.fresh[path] = now
	var record kubeletconfig.ImagePulledRecord
	if err := read(path, "ImagePulledRecord", &record); err != nil || record.ImageRef != ref {
		record = kubeletconfig.ImagePulledRecord{} // an unreadable record admits no pod: replace it
	}
	repository := repositoryOf(image)
	creds, changed := merge(record.CredentialMapping[repository], with)
	// Refresh an old record: a prune with a list of images from before this pull would remove it.
	if changed || record.ImageRef == "" || now.Sub(record.LastUpdatedTime.Time) > time.Minute {
		record.TypeMeta, record.LastUpdatedTime, record.ImageRef = typeMeta("ImagePulledRecord"), metav1.NewTime(now), ref
		if record.CredentialMapping == nil {
			record.CredentialMapping = map[string]kubeletconfig.ImagePullCredentials{}
		}
		record.CredentialMapping[repository] = creds
		if err := write(path, record); err != nil {
			r.unsettled[image] = true
			return errors.Join(fmt.Errorf("could not note with which credentials it was pulled: %w", err), r.end(image))
		}
	}
	delete(r.unsettled, image)
	return r.end(image)
}

// end ends one pull of the image; the caller holds the lock.
func (r *Records) end(image string) error {
	if r.underway[image]--; r.underway[image] > 0 {
		return nil
	}
	delete(r.underway, image)
	if r.unsettled[image] {
		return nil
	}
	var errs []error
	for _, name := range spellings(image) {
		errs = append(errs, atomicfile.Remove(filepath.Join(r.pulling, fileName(name))))
	}
	return errors.Join(errs...)
}

// Read returns the record of the present image ref, which has the name image.
func (r *Records) Read(image, ref string) Record {
	if r == nil {
		return Record{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var record kubeletconfig.ImagePulledRecord
	err := read(filepath.Join(r.pulled, fileName(ref)), "ImagePulledRecord", &record)
	switch {
	case err == nil && record.ImageRef == ref:
		return Record{Ours: true, Credentials: record.CredentialMapping}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return Record{Ours: true, Problem: err}
	}
	return Record{Ours: r.begun(image)}
}

// Prune removes the records of images for which has returns false. since is the time at which the images were listed; later
// records are kept.
func (r *Records) Prune(has func(name string) bool, since time.Time) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.count()
	maps.DeleteFunc(r.fresh, func(_ string, at time.Time) bool { return at.Before(since) })
	since = since.Truncate(time.Second) // the resolution of records
	errs := prune(r.pulled, func(path string) bool {
		if _, fresh := r.fresh[path]; fresh { // the clock may have been set back since the list
			return false
		}
		var record kubeletconfig.ImagePulledRecord
		err := read(path, "ImagePulledRecord", &record)
		return err == nil && record.LastUpdatedTime.Time.Before(since) && !has(record.ImageRef)
	})
	return errors.Join(errs, prune(r.pulling, func(path string) bool {
		var intent kubeletconfig.ImagePullIntent
		if read(path, "ImagePullIntent", &intent) != nil || r.busy(intent.Image) || has(intent.Image) {
			return false
		}
		delete(r.unsettled, intent.Image)
		return true
	}))
}

// busy reports whether a pull with a record of this name is in progress.
func (r *Records) busy(name string) bool {
	for image := range r.underway {
		if slices.Contains(spellings(image), name) {
			return true
		}
	}
	return false
}

func prune(dir string, gone func(path string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), prefix) && len(e.Name()) == nameBytes && e.Type().IsRegular() && gone(path) {
			err = errors.Join(err, atomicfile.Remove(path))
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// merge adds a credential to those of a repository, and reports whether it changed them.
func merge(creds kubeletconfig.ImagePullCredentials, with *pullauth.Credential) (kubeletconfig.ImagePullCredentials, bool) {
	if creds.NodePodsAccessible {
		return creds, false
	}
	switch {
	case with == nil || with.Node():
		return kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}, true
	case !with.Secret():
		account := accountOf(with.Account)
		if slices.Contains(creds.KubernetesServiceAccounts, account) {
			return creds, false
		}
		creds.KubernetesServiceAccounts = append(slices.Clone(creds.KubernetesServiceAccounts), account)
		return creds, true
	}
	secret := secretOf(with)
	list := slices.DeleteFunc(slices.Clone(creds.KubernetesSecrets), func(s kubeletconfig.ImagePullSecret) bool {
		return s != secret && sameObject(s, secret) // its earlier contents
	})
	if slices.Contains(list, secret) {
		return creds, len(list) != len(creds.KubernetesSecrets)
	}
	creds.KubernetesSecrets = append(list, secret)
	return creds, true
}

func accountOf(a pullauth.Account) kubeletconfig.ImagePullServiceAccount {
	return kubeletconfig.ImagePullServiceAccount{UID: a.UID, Namespace: a.Namespace, Name: a.Name}
}

func secretOf(c *pullauth.Credential) kubeletconfig.ImagePullSecret {
	return kubeletconfig.ImagePullSecret{UID: c.UID, Namespace: c.Namespace, Name: c.Name, CredentialHash: c.Hash()}
}

// sameObject reports whether both are the same API object. A Secret from a folder has no UID, and is identified by its contents.
func sameObject(a, b kubeletconfig.ImagePullSecret) bool {
	return a.UID == b.UID && a.UID != "" && a.Namespace == b.Namespace && a.Name == b.Name
}

func fileName(of string) string { return fmt.Sprintf("%s%x", prefix, sha256.Sum256([]byte(of))) }

func typeMeta(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: version, Kind: kind} }

// maxRecord limits the size of a record in bytes.
const maxRecord = 4 << 20

// read accepts any version of the kind, since all versions have the same fields.
func read(path, kind string, into any) error {
	data, err := atomicfile.ReadFile(path, maxRecord)
	if err != nil {
		return err
	}
	var is metav1.TypeMeta
	if err := json.Unmarshal(data, &is); err != nil || is.Kind != kind || !strings.HasPrefix(is.APIVersion, group) {
		return fmt.Errorf("%s is not a %s of %s", path, kind, version)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func write(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := atomicfile.MakeDir(d); err != nil {
			return err
		}
	}
	return atomicfile.WriteFile(path, append(data, '\n'), 0o600)
}
