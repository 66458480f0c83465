package dev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/playlet-dev/playlet/cmd/playlet/agent/locks"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/containerd"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
)

// folder is a run's own; all it writes is below.
type folder string

func (f folder) at(name string) string { return filepath.Join(string(f), name) }

// The contents of a folder besides the manifests. Each is removed at the end, except objects of the user.
const (
	planFile       = "plan.json"
	outcomeFile    = "outcome"
	agentLog       = "agent.log"
	containerdLog  = "containerd.log"
	kubeletConf    = "kubelet.yaml"
	nodeFolder     = "node"
	podLogsFolder  = "pod-logs"
	logLinksFolder = "log-links"
	adminSock      = "admin.sock"
	objectsFolder  = "objects"
	brokenFile     = "broken.yaml" // a pod that fails in an instructive way; it is not run by itself
	greetingFile   = "greeting.yaml"

	manifestsFolder = "manifests"
	// markFile contains the ID of the run that the folder belongs to. It is written first and removed last.
	markFile = ".playlet-dev"
)

var contents = append([]string{
	planFile, outcomeFile, agentLog, containerdLog, kubeletConf, nodeFolder, podLogsFolder, adminSock, adminSock + ".lock",
	folder("").containerd().Socket() + locks.RuntimeSuffix, logLinksFolder, brokenFile, greetingFile,
}, containerd.Contents...)

func (f folder) manifests() string  { return f.at(manifestsFolder) }
func (f folder) samplePath() string { return filepath.Join(f.manifests(), sampleFile) }

// containerd returns the same folder, for containerd's files in it.
func (f folder) containerd() containerd.Folder { return containerd.Folder(f) }

// maxFolder is the length that a unix socket's path leaves for the folder (unix(7): 107 bytes).
var maxFolder = 107 - len("/"+folder("").containerd().Socket()+".ttrpc")

// newFolder names the folder of a run, and refuses one that cannot be used. Nothing is made yet.
func newFolder(wanted, name string) (path string, temporary bool, err error) {
	temporary = wanted == ""
	if temporary {
		wanted = filepath.Join(os.TempDir(), name)
	}
	if path, err = filepath.Abs(wanted); err != nil {
		return "", false, err
	}
	// Mounts and cgroups know only the path that is behind links.
	if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(real, filepath.Base(path))
	}
	if len(path) > maxFolder {
		return "", false, fmt.Errorf("the path %s is too long: the sockets in it may have 107 bytes, which leaves %d", path,
			maxFolder)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, temporary, nil
	case err != nil:
		return "", false, err
	case !info.IsDir():
		return "", false, fmt.Errorf("%s is not a folder", path)
	case temporary:
		return "", false, fmt.Errorf("%s is there already", path)
	}
	for _, name := range contents {
		if _, err := os.Lstat(filepath.Join(path, name)); err == nil {
			return "", false, fmt.Errorf("%s contains %s, which playlet dev did not create: give --dir a separate folder",
				path, name)
		}
	}
	return path, temporary, nil
}

// make creates the folder, private to root, and the one of manifests, with the sample in it unless it is empty.
func (f folder) make(id, sample string) error {
	if err := os.Mkdir(string(f), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := namespaces.OwnFolder(string(f)); err != nil {
		return fmt.Errorf("%w: give --dir one of root's", err)
	}
	if err := writeFile(f.at(markFile), []byte(id), 0o600); err != nil {
		return err
	}
	for _, dir := range []string{f.manifests(), f.at(podLogsFolder)} {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := os.Mkdir(f.at(objectsFolder), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := errors.Join(writeFile(f.at(brokenFile), []byte(brokenManifest), 0o644),
		writeFile(f.at(greetingFile), []byte(greetingManifest), 0o644)); err != nil || sample == "" {
		return err
	}
	return writeFile(f.samplePath(), []byte(sample), 0o644)
}

// manifestsThere reports whether the folder already contains manifests.
func (f folder) manifestsThere() (bool, error) {
	entries, err := os.ReadDir(f.manifests())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return len(entries) > 0, err
}

// remove removes all files of a run. In a folder named by the user, the user's files stay: objects, manifests other than the
// sample, and the sample if it was changed. Without the mark of the run it removes nothing: another folder, or a link, has taken
// the place of the run's. Removed files are named relative to the open folder, so that a link in its path changes nothing.
func (f folder) remove(r *Record) error {
	root, err := f.open(r)
	if root == nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written through it
	if err := namespaces.RefuseMounts(string(f)); err != nil {
		return err
	}
	names := slices.Concat(contents, []string{unfinished(filepath.Join(manifestsFolder, sampleFile))})
	for _, name := range contents {
		names = append(names, unfinished(name))
	}
	if r.Temporary {
		entries, err := fs.ReadDir(root.FS(), ".")
		if err != nil {
			return err
		}
		names = nil
		for _, e := range entries {
			if e.Name() != markFile {
				names = append(names, e.Name())
			}
		}
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, root.RemoveAll(name))
	}
	if err := root.Remove(objectsFolder); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		errs = append(errs, err)
	}
	sample := filepath.Join(manifestsFolder, sampleFile)
	if text, err := root.ReadFile(sample); err == nil && r.Sample != "" && string(text) == r.Sample {
		errs = append(errs, root.Remove(sample))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := root.Remove(markFile); err != nil && !errors.Is(err, fs.ErrNotExist) || !r.Temporary {
		return err // the folder is removed as the others that were made
	}
	return os.Remove(string(f))
}

// open opens the folder if it has the mark of the run. It returns nil if there is no folder, or one with nothing of a run,
// because the run was killed before it wrote the mark, or was undone before.
func (f folder) open(r *Record) (*os.Root, error) {
	err := namespaces.OwnFolder(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: nothing in it is removed", err)
	}
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return nil, err
	}
	mark, err := root.ReadFile(markFile)
	if err == nil && string(mark) == r.ID || errors.Is(err, fs.ErrNotExist) && !r.Marked {
		return root, nil
	}
	there := func(name string) bool { _, err := root.Lstat(name); return err == nil }
	foreign := err == nil || slices.ContainsFunc(contents, there)
	_ = root.Close() // nothing was written through it
	if foreign {
		return nil, errReplaced
	}
	if r.Temporary {
		return nil, removeEmpty(string(f))
	}
	return nil, nil
}

// errReplaced is the error of a folder that does not have the mark of the run.
var errReplaced = errors.New("it was replaced by another")

// removeEmpty removes a folder that holds nothing.
func removeEmpty(dir string) error {
	err := os.Remove(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	return err
}

// missingFolders returns the missing folders among dirs and their parents, parents first.
func missingFolders(dirs ...string) ([]string, error) {
	var out []string
	for _, dir := range dirs {
		var lacking []string
		for ; dir != "/"; dir = filepath.Dir(dir) {
			_, err := os.Lstat(dir)
			if err == nil {
				break
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			lacking = append(lacking, dir)
		}
		for _, one := range slices.Backward(lacking) {
			if !slices.Contains(out, one) {
				out = append(out, one)
			}
		}
	}
	return out, nil
}

func makeFolders(dirs []string) error {
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func removeFolders(dirs []string) error {
	var errs []error
	for _, dir := range slices.Backward(dirs) {
		errs = append(errs, removeEmpty(dir))
	}
	return errors.Join(errs...)
}
