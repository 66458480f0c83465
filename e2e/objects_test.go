//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// putObject writes a manifest of objects for an agent, as a whole.
func putObject(t *testing.T, dir, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.WriteFile(dir+".new", []byte(text), 0o600))
	must(t, os.Rename(dir+".new", filepath.Join(dir, name)))
}

const hiddenWord = "hunter2"

// ConfigMaps and Secrets of a folder appear in files and environments; a change appears in the files of running containers; pods
// wait for a missing one by its name; the content of a Secret appears nowhere else. A RuntimeClass of the folder names the pod's
// handler.
func TestConfigMapsAndSecrets(t *testing.T) {
	const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: COLOR, size: \"9\"}\n"
	const password = "apiVersion: v1\nkind: Secret\nmetadata: {name: password}\nstringData: {word: " + hiddenWord + "}\n"
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		dir := filepath.Join(t.TempDir(), "objects")
		putObject(t, dir, "settings.yaml", strings.ReplaceAll(settings, "COLOR", "red"))
		a := agentWith(t, s, func(a *stack.Agent) { quick(a); a.Args = append(a.Args, "--object-dir="+dir) })
		putObject(t, dir, "class.yaml",
			"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: second}\nhandler: "+stack.SecondHandler+"\n")
		must(t, a.Write("p.yaml", manifest(s, "p", `
terminationGracePeriodSeconds: 5
runtimeClassName: second
containers:
- name: c
  image: HELLO
  args: [cat, /settings/color, --, args, "", $(COLOR) $(PRE_size) $(NONE), --, cat, /all/in/word, --, args, "", --, wait-file, /settings/taste, --, cat, /settings/color, --, args, "", --, sleep]
  env:
  - {name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}
  - {name: NONE, valueFrom: {secretKeyRef: {name: none, key: x, optional: true}}}
  envFrom: [{prefix: PRE_, configMapRef: {name: settings}}]
  volumeMounts: [{name: settings, mountPath: /settings}, {name: all, mountPath: /all}, {name: maybe, mountPath: /maybe}]
volumes:
- {name: settings, configMap: {name: settings}}
- {name: maybe, secret: {secretName: none, optional: true}}
- name: all
  projected:
    sources:
    - secret: {name: password, items: [{key: word, path: in/word, mode: 0400}]}
    - configMap: {name: settings}
    - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}`)))
		awaitWaiting(t, a, "p", "FailedMount", `"all"`, "Secret default/password", "does not exist")
		putObject(t, dir, "password.yaml", password)
		c := up(t, s, "p", "c")
		first := "red\nred 9 $(NONE)\n" + hiddenWord + "\n"
		awaitLogs(t, s, c.Id, first)
		before := podMounts(t, a)
		sandbox := runsBySecond(t, s, c.Labels[stack.UIDLabel])

		putObject(t, dir, "settings.yaml", strings.ReplaceAll(settings, "COLOR", "blue")+"  taste: sweet\n  nonsense: [broken]\n")
		awaitProblem(t, a, "settings.yaml", "neither YAML nor JSON")
		putObject(t, dir, "settings.yaml", strings.ReplaceAll(settings, "COLOR, size", "blue, taste: sweet, size"))
		awaitLogs(t, s, c.Id, first+"blue\n")

		must(t, a.Kill9())
		must(t, a.Start())
		settled(t, a)
		awaitPod(t, a, "p", inPhase(corev1.PodRunning))
		if now := podMounts(t, a); !slices.Equal(now, before) {
			t.Errorf("before the agent was killed %v was mounted, now %v", before, now)
		}
		asStarted(t, s, containersOf(t, s, "p"))
		if again := runsBySecond(t, s, c.Labels[stack.UIDLabel]); again != sandbox {
			t.Errorf("the pod's sandbox was %s and is %s", sandbox, again)
		}

		must(t, a.Write("env.yaml", manifest(s, "env", `
terminationGracePeriodSeconds: 5
containers:
- {name: c, image: HELLO, args: [env, WORD, --, sleep], env: [{name: WORD, valueFrom: {secretKeyRef: {name: password, key: other}}}]}`)))
		pod := awaitPod(t, a, "env", waitsFor("CreateContainerConfigError"))
		if m := fmt.Sprint(statusOf(pod, "c").State.Waiting); !strings.Contains(m, "default/password") ||
			!strings.Contains(m, "other") {
			t.Errorf("the reason does not name object and key: %s", m)
		}
		putObject(t, dir, "password.yaml", strings.Replace(password, "{word:", "{other: new, word:", 1))
		awaitLogs(t, s, up(t, s, "env", "c").Id, "new\n")

		snapshot, err := a.Command(t.Context(), "pods", "-o", "yaml")
		must(t, err)
		for what, text := range map[string]string{"log": a.Log(), "snapshot": string(snapshot)} {
			if strings.Contains(text, hiddenWord) {
				t.Errorf("the agent's %s tells what a Secret holds", what)
			}
		}
		must(t, a.Remove("p.yaml"))
		must(t, a.Remove("env.yaml"))
		cleared(t, s, a)
		if left := podMounts(t, a); len(left) > 0 {
			t.Errorf("still mounted: %v", left)
		}
	})
}
