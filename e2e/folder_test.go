//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// A link to another folder replaces the manifest folder, as by tools that switch between versions, and then another target: pods
// in both continue, pods only in the old one end, new ones start.
func TestTheManifestFolderIsReplacedByALink(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		keep, gone := manifest(s, "keep", sleeper), manifest(s, "gone", sleeper)
		must(t, a.Write("keep.yaml", keep))
		must(t, a.Write("gone.yaml", gone))
		before := running(t, s, 2)
		kept := up(t, s, "keep", "c")

		version := func(n int, names ...string) string {
			dir := filepath.Join(filepath.Dir(a.ManifestDir), fmt.Sprint("v", n))
			must(t, os.Mkdir(dir, 0o755))
			must(t, os.WriteFile(filepath.Join(dir, "keep.yaml"), []byte(keep), 0o644))
			for _, name := range names {
				must(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(manifest(s, name, sleeper)), 0o644))
			}
			return dir
		}
		first, second := version(1, "first"), version(2, "second")
		must(t, os.Rename(a.ManifestDir, a.ManifestDir+".old"))
		must(t, os.Symlink(first, a.ManifestDir))
		up(t, s, "first", "c")
		forgotten(t, a, "gone")

		must(t, os.Symlink(second, a.ManifestDir+".new"))
		must(t, os.Rename(a.ManifestDir+".new", a.ManifestDir))
		up(t, s, "second", "c")
		forgotten(t, a, "first")
		if now := up(t, s, "keep", "c"); now.Id != kept.Id {
			t.Errorf("the container that both folders name is another; before: %s", ids(before))
		}
		must(t, os.Remove(a.ManifestDir))
		must(t, os.Mkdir(a.ManifestDir, 0o755))
		nothing(t, s)
	})
}

// A folder that is written as the kubelet writes a ConfigMap: links through ..data, which is swapped in one step.
func TestManifestsFromAConfigMap(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		keep := manifest(s, "keep", sleeper)
		swap := func(version, web string) {
			dir := filepath.Join(a.ManifestDir, ".."+version)
			must(t, os.Mkdir(dir, 0o755))
			must(t, os.WriteFile(filepath.Join(dir, "keep.yaml"), []byte(keep), 0o644))
			must(t, os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(web), 0o644))
			must(t, os.Symlink(".."+version, filepath.Join(a.ManifestDir, "..data_tmp")))
			must(t, os.Rename(filepath.Join(a.ManifestDir, "..data_tmp"), filepath.Join(a.ManifestDir, "..data")))
		}
		swap("1", manifest(s, "web", sleeper))
		for _, name := range []string{"keep.yaml", "web.yaml"} {
			must(t, os.Symlink(filepath.Join("..data", name), filepath.Join(a.ManifestDir, name)))
		}
		web, kept := up(t, s, "web", "c"), up(t, s, "keep", "c")
		swap("2", manifest(s, "web", strings.Replace(sleeper, "[sleep]", "[sleep, '100000']", 1)))
		must(t, os.RemoveAll(filepath.Join(a.ManifestDir, "..1")))
		await(t, func() error {
			if now := up(t, s, "web", "c"); now.Id == web.Id || now.Labels[stack.UIDLabel] == web.Labels[stack.UIDLabel] {
				return fmt.Errorf("container %s of pod %s still runs", now.Id, now.Labels[stack.UIDLabel])
			}
			return nil
		})
		if now := up(t, s, "keep", "c"); now.Id != kept.Id {
			t.Error("the container of the manifest that did not change is another")
		}
	})
}

// A manifest that is written in pieces, in place, and editors' files beside manifests.
func TestHalfWrittenFilesAndEditorsFiles(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		at := func(name string) string { return filepath.Join(a.ManifestDir, name) }
		for _, name := range []string{".hidden.yaml", "web.yaml~", ".web.yaml.swp", "#web.yaml#", "4913"} {
			must(t, os.WriteFile(at(name), []byte(manifest(s, "editors", sleeper)), 0o644))
		}
		must(t, os.Mkdir(at("folder"), 0o755))
		must(t, os.WriteFile(at("folder/inner.yaml"), []byte(manifest(s, "inner", sleeper)), 0o644))

		text := manifest(s, "web", sleeper)
		f, err := os.Create(at("web.yaml"))
		must(t, err)
		for i := 0; i < len(text); i += 20 {
			_, err := f.WriteString(text[i:min(i+20, len(text))])
			must(t, err)
		}
		must(t, f.Close())
		web := up(t, s, "web", "c")

		// Truncated and rewritten, as by editors that write in place: the pod stays unchanged.
		must(t, os.WriteFile(at("web.yaml"), []byte(text[:len(text)/2]), 0o644))
		awaitProblem(t, a, "web.yaml", "")
		must(t, os.WriteFile(at("web.yaml"), []byte(text), 0o644))
		await(t, func() error {
			now, err := a.Snapshot(t.Context())
			if err == nil && len(now.Problems) > 0 {
				err = fmt.Errorf("problems: %+v", now.Problems)
			}
			return err
		})
		if now := running(t, s, 1); now[0].Id != web.Id {
			t.Error("the container is another")
		}
		all, err := s.Containers(t.Context())
		must(t, err)
		if len(all) != 1 {
			t.Errorf("there are %d containers: %v", len(all), all)
		}
	})
}

// The last good version of a manifest that became bad stays, over the agent's death too, and goes with the manifest.
func TestTheLastGoodVersionStays(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		must(t, a.Write("web.yaml", manifest(s, "web", sleeper)))
		before := up(t, s, "web", "c")
		for name, bad := range map[string]string{
			"syntax": "apiVersion: v1\nkind: Pod\nmetadata: {name: web\nspec:\n",
			"field":  manifest(s, "web", strings.Replace(sleeper, "args", "lifecycle: {preStop: {tcpSocket: {port: 1}}}, args", 1)),
			"value":  manifest(s, "web", strings.Replace(sleeper, "HELLO", "''", 1)),
		} {
			must(t, a.Write("web.yaml", bad))
			await(t, func() error {
				now, err := a.Snapshot(t.Context())
				if err == nil && (len(now.Problems) != 1 || !now.Problems[0].KeptLast || now.Problems[0].Line == 0) {
					err = fmt.Errorf("%s: problems %+v", name, now.Problems)
				}
				return err
			})
			must(t, a.Kill9())
			must(t, a.Start())
			p := awaitProblem(t, a, "web.yaml", "")
			if !p.KeptLast {
				t.Errorf("%s: %+v", name, p)
			}
			awaitPod(t, a, "web", ready)
			if now := up(t, s, "web", "c"); now.Id != before.Id {
				t.Errorf("%s: the container is another", name)
			}
			// A good version makes an end of the problem, and must not be taken for another pod.
			must(t, a.Write("web.yaml", manifest(s, "web", sleeper)))
			await(t, func() error {
				now, err := a.Snapshot(t.Context())
				if err == nil && len(now.Problems) > 0 {
					err = fmt.Errorf("%s: problems %+v", name, now.Problems)
				}
				return err
			})
		}
		if now := up(t, s, "web", "c"); now.Id != before.Id {
			t.Error("the container is another")
		}
		must(t, a.Write("web.yaml", "nonsense"))
		awaitProblem(t, a, "web.yaml", "")
		must(t, a.Remove("web.yaml"))
		cleared(t, s, a)
	})
}

// Several documents in one file, and JSON; a single file in place of a folder.
func TestDocumentsAndJSON(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		must(t, a.Write("two.yaml", "---\n"+manifest(s, "one", sleeper)+"---\n# nothing\n---\n"+manifest(s, "two", sleeper)))
		must(t, a.Write("three.json", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "three", "labels": {"app": "x"}},
			"spec": {"containers": [{"name": "c", "image": %q, "args": ["sleep"]}]}}`, s.HelloImage())))
		for _, name := range []string{"one", "two", "three"} {
			up(t, s, name, "c")
		}
		pod := awaitPod(t, a, "three", ready)
		if pod.Namespace != "default" || pod.Labels["app"] != "x" || pod.Annotations["kubernetes.io/config.source"] != "file" ||
			pod.Annotations["kubernetes.io/config.hash"] != string(pod.UID) ||
			pod.Annotations["kubernetes.io/config.seen"] == "" {
			t.Errorf("the pod is %+v", pod.ObjectMeta)
		}
		must(t, a.Kill9())
		a.Args = append(a.Args, "--pod-manifest-path="+filepath.Join(a.ManifestDir, "two.yaml"))
		must(t, a.Start())
		forgotten(t, a, "three")
		running(t, s, 2)
		must(t, a.Remove("two.yaml"))
		nothing(t, s)
	})
}
