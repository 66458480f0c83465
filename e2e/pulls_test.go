//go:build e2e

package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/e2e/stack"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// another starts a registry besides the stack's, with these images.
func another(t *testing.T, images ...string) *devimages.Registry {
	t.Helper()
	r, err := devimages.StartRegistry(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	pushTo(t, r, images...)
	return r
}

func pushTo(t *testing.T, r *devimages.Registry, images ...string) {
	t.Helper()
	for _, name := range images {
		image, err := devimages.Image(devimages.Hello, func(c *v1.Config) { c.Labels["test"] = name })
		must(t, err)
		must(t, r.Push(name, image))
	}
}

// ofRegistry is a pod of that image, with these pull secrets.
func ofRegistry(s *stack.Stack, name, image string, secrets ...string) string {
	var refs []string
	for _, s := range secrets {
		refs = append(refs, "{name: "+s+"}")
	}
	return manifest(s, name,
		fmt.Sprintf("terminationGracePeriodSeconds: 5\nimagePullSecrets: [%s]\ncontainers: [{name: c, image: %q, args: [sleep], imagePullPolicy: Always}]",
			strings.Join(refs, ", "), image))
}

// A private registry gets the matching credentials of the pod's pull secrets, one after another, and at last those of the node's
// own docker configuration; a new Secret is tried at once. Their content appears nowhere.
func TestPullSecrets(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		private, open := another(t, "team/app", "other"), another(t, "open")
		private.Protect("robot", hiddenWord)
		auth := base64.StdEncoding.EncodeToString([]byte("robot:" + hiddenWord))
		dir := filepath.Join(t.TempDir(), "objects")
		must(t, os.Mkdir(dir, 0o700))
		a := agentWith(t, s, func(a *stack.Agent) { quick(a); a.Args = append(a.Args, "--object-dir="+dir) })
		app := private.Ref("team/app")
		must(t, a.Write("none.yaml", ofRegistry(s, "none", app)))
		must(t, a.Write("later.yaml", ofRegistry(s, "later", app, "wrong", "regcred")))
		must(t, a.Write("old.yaml", ofRegistry(s, "old", app, "old")))
		must(t, a.Write("open.yaml", ofRegistry(s, "open", open.Ref("open"), "gone"))) // a public image needs none
		up(t, s, "open", "c")
		awaitPod(t, a, "none", saysWaiting("ErrImagePull", app))
		awaitPod(t, a, "later", saysWaiting("ErrImagePull", app, "Secret default/wrong does not exist",
			"Secret default/regcred does not exist"))

		secret := func(name, kind, key, config string) string {
			return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\ntype: kubernetes.io/%s\nstringData: {%s: %q}\n", name, kind, key, config)
		}
		putObject(t, dir, "secrets.yaml", strings.Join([]string{
			secret("wrong", "dockerconfigjson", ".dockerconfigjson", fmt.Sprintf(`{"auths":{"%s/team":{"username":"robot","password":"wrong"}}}`, private.Addr)),
			secret("regcred", "dockerconfigjson", ".dockerconfigjson", fmt.Sprintf(`{"auths":{"http://%s":{"auth":%q}}}`, private.Addr, auth)),
			secret("old", "dockercfg", ".dockercfg", fmt.Sprintf(`{"%s":{"username":"robot","password":%q}}`, private.Addr, hiddenWord)),
		}, "---\n"))
		up(t, s, "later", "c")
		up(t, s, "old", "c")
		awaitPod(t, a, "none", saysWaiting("ImagePullBackOff", `Back-off pulling image "`+app+`": ErrImagePull: `))

		must(t, os.WriteFile(filepath.Join(a.RootDir, "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, private.Addr, auth), 0o600))
		must(t, a.Write("node.yaml", ofRegistry(s, "node", private.Ref("other"))))
		up(t, s, "node", "c")
		up(t, s, "none", "c") // with its next try

		shown, err := a.Command(t.Context(), "pods", "-o", "yaml")
		must(t, err)
		for what, text := range map[string]string{"log": a.Log(), "output": string(shown)} {
			if strings.Contains(text, hiddenWord) || strings.Contains(text, auth) {
				t.Errorf("the agent's %s tells a credential", what)
			}
		}
	})
}

// A private image pulled by one pod is not run by a pod without credentials for it, whether or not that may pull: not after the
// agent was killed, and not after a collection. playlet explain has the reason.
func TestPrivateImagesStayPrivate(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		private := another(t, "team/app")
		private.Protect("robot", hiddenWord)
		dir := filepath.Join(t.TempDir(), "objects")
		putObject(t, dir, "secrets.yaml", fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: regcred}\ntype: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: %q}\n",
			fmt.Sprintf(`{"auths":{%q:{"username":"robot","password":%q}}}`, private.Addr, hiddenWord)))
		a := agentWith(t, s, func(a *stack.Agent) {
			quick(a)
			a.Args = append(a.Args, "--object-dir="+dir)
			a.Config["imageMinimumGCAge"] = "1ns"
		})
		pod := func(name, policy string, secrets ...string) {
			t.Helper()
			must(t, a.Write(name+".yaml", strings.Replace(ofRegistry(s, name, private.Ref("team/app"), secrets...), "Always", policy, 1)))
		}
		explained := func(name string) {
			t.Helper()
			await(t, func() error {
				said, _, _ := playlet(t, "explain", "pod/"+name, "--admin-socket="+a.AdminSocket)
				if !strings.Contains(said, "credentials that this pod does not have") {
					return fmt.Errorf("pod %s is explained as %s", name, said)
				}
				return nil
			})
		}
		none := func(names ...string) {
			t.Helper()
			for _, name := range names {
				explained(name)
				if all := containersOf(t, s, name); len(all) > 0 {
					t.Errorf("pod %s has containers: %v", name, all)
				}
			}
		}
		pod("owner", "IfNotPresent", "regcred")
		up(t, s, "owner", "c")
		pod("puller", "IfNotPresent")
		pod("silent", "Never")
		none("puller", "silent")
		await(t, func() error { // a sandbox whose creation is interrupted leaves a cgroup for the life of its pod
			list, err := s.CRI().ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
			if err != nil {
				return err
			}
			ready := 0
			for _, sandbox := range list.GetItems() {
				if sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
					ready++
				}
			}
			if ready != 3 {
				return fmt.Errorf("%d sandboxes are ready", ready)
			}
			return nil
		})
		must(t, a.Kill9())
		must(t, a.Start())
		pod("late", "Never")
		none("puller", "silent", "late")
		if _, errs, code := playlet(t, "images", "prune", "--admin-socket="+a.AdminSocket); code != 0 {
			t.Errorf("playlet images prune: %s", errs)
		}
		pod("latest", "IfNotPresent")
		pod("heir", "Never", "regcred")
		up(t, s, "heir", "c")
		none("puller", "silent", "late", "latest")
		if strings.Contains(a.Log(), hiddenWord) {
			t.Error("the agent's log tells a credential")
		}
	})
}

// While one registry does not answer, the pulls from another go on; a waiting pod reports its place, and its changes.
func TestASlowRegistry(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	slow, fast := another(t, "a", "b", "c"), another(t, "first", "second", "third")
	release := make(chan struct{})
	slow.Intercept(func(*http.Request) devimages.Fault { return devimages.Fault{Until: release} })
	a := agentWith(t, s, func(a *stack.Agent) {
		quick(a)
		a.Config["serializeImagePulls"], a.Config["maxParallelImagePulls"] = false, 2
	})
	must(t, a.Write("first.yaml", ofRegistry(s, "first", fast.Ref("first"))))
	up(t, s, "first", "c")
	for _, name := range []string{"a", "b", "c"} {
		must(t, a.Write(name+".yaml", ofRegistry(s, name, slow.Ref(name))))
		waitsSoFar(t, a, name, "image "+slow.Ref(name)+" ")
	}
	must(t, a.Write("second.yaml", ofRegistry(s, "second", fast.Ref("second"))))
	up(t, s, "second", "c")
	must(t, a.Write("third.yaml", ofRegistry(s, "third", fast.Ref("third"))))
	up(t, s, "third", "c")
	waitsSoFar(t, a, "a", " is being pulled", slow.Addr, "(for ")
	waitsSoFar(t, a, "b", " 1st in the queue of the registry "+slow.Addr, "(for ")
	waitsSoFar(t, a, "c", " 2nd in the queue of the registry "+slow.Addr, "(for ")
	awaitPod(t, a, "a", saysWaiting("ContainerCreating", "is being pulled"))
	close(release)
	running(t, s, 6)
}

// waitsSoFar waits until "playlet pods" reports a pod's wait with all these words.
func waitsSoFar(t *testing.T, a *stack.Agent, pod string, words ...string) {
	t.Helper()
	await(t, func() error {
		_, said, _ := playlet(t, "pods", "--admin-socket="+a.AdminSocket)
		for line := range strings.Lines(said) {
			if !strings.HasPrefix(line, "default/"+onNode(pod)+": ") {
				continue
			}
			for _, word := range words {
				if !strings.Contains(line, word) {
					return fmt.Errorf("it does not speak of %q: %s", word, line)
				}
			}
			return nil
		}
		return fmt.Errorf("nothing is said of pod %s:\n%s", pod, said)
	})
}

// An agent that is killed while an image is pulled has it pulled again, and the container is started once.
func TestAgentKilledInAPull(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		push(t, s, "held", "")
		release := make(chan struct{})
		var blobs atomic.Int32
		s.Registry.Intercept(func(r *http.Request) devimages.Fault {
			if !strings.HasPrefix(r.URL.Path, "/v2/held/blobs/") {
				return devimages.Fault{}
			}
			blobs.Add(1)
			return devimages.Fault{Until: release}
		})
		a := s.Agent(t)
		must(t, a.Write("held.yaml", policyPod(s, "held", s.Registry.Ref("held"), "")))
		asked := func(before int32) {
			t.Helper()
			await(t, func() error {
				if blobs.Load() == before {
					return fmt.Errorf("no more than %d times was a layer asked for", before)
				}
				return nil
			})
		}
		asked(0)
		await(t, func() error { // containerd leaves the shim of an interrupted creation
			all, err := s.Sandboxes(t.Context())
			if err == nil && (len(all) != 1 || all[0].State != runtimeapi.PodSandboxState_SANDBOX_READY) {
				err = fmt.Errorf("the sandboxes are %v", all)
			}
			return err
		})
		for range 3 {
			before := blobs.Load()
			waitsSoFar(t, a, "held", " is being pulled")
			must(t, a.Kill9())
			must(t, a.Start())
			asked(before)
		}
		waitsSoFar(t, a, "held", " is being pulled")
		// One pull at a time, unless configured otherwise.
		other := another(t, "other")
		must(t, a.Write("other.yaml", policyPod(s, "other", other.Ref("other"), "")))
		waitsSoFar(t, a, "other", " 1st in the queue of the registry "+other.Addr)
		close(release)
		c := up(t, s, "held", "c")
		up(t, s, "other", "c")
		settled(t, a)
		if all := containersOf(t, s, "held"); len(all) != 1 || c.Metadata.Attempt != 0 {
			t.Errorf("after the kills there are %v", all)
		}
	})
}
