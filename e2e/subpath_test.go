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

const colors = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: colors}\ndata: {color: COLOR}\n---\n" +
	"apiVersion: v1\nkind: Secret\nmetadata: {name: words}\nstringData: {word: hush}\n"

// A container mounts a part of a volume of every kind, a folder or a file; missing folders are created writable for their users.
// It outlives the agent and the container, and is removed with the pod.
func TestSubPaths(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		dir := t.TempDir()
		objects, host := filepath.Join(dir, "objects"), filepath.Join(dir, "host")
		must(t, os.MkdirAll(filepath.Join(host, "v1"), 0o755))
		must(t, os.WriteFile(filepath.Join(host, "v1/file"), []byte("host\n"), 0o644))
		must(t, os.Symlink("v1", filepath.Join(host, "current")))
		putObject(t, objects, "objects.yaml", strings.ReplaceAll(colors, "COLOR", "red"))
		a := agentWith(t, s, func(a *stack.Agent) { quick(a); a.Args = append(a.Args, "--object-dir="+objects) })
		must(t, a.Write("p.yaml", manifest(s, "p", fmt.Sprintf(`
terminationGracePeriodSeconds: 5
containers:
- name: c
  image: HELLO
  args: [write, /new/x, x, --, write, /expr/x, x, --, write, /memory/x, x, --, check-file, /data/a/b/x, --, check-file, /data/of/%s/x, --,
    cat, /host/file, --, cat, /host-file, --, cat, /one/color, --, args, "", --, cat, /one/word, --, args, "", --, cat, /one/name, --, args, "",
    --, cat, /one/info, --, args, "", --, sleep]
  securityContext: {runAsUser: 65534, runAsGroup: 65534}
  env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
  volumeMounts:
  - {name: data, mountPath: /data}
  - {name: data, mountPath: /new, subPath: a/b}
  - {name: data, mountPath: /expr, subPathExpr: of/$(NAME)}
  - {name: memory, mountPath: /memory, subPath: m}
  - {name: host, mountPath: /host, subPath: current}
  - {name: host, mountPath: /host-file, subPath: current/file}
  - {name: colors, mountPath: /one/color, subPath: color}
  - {name: words, mountPath: /one/word, subPath: word}
  - {name: all, mountPath: /one/name, subPath: in/name}
  - {name: info, mountPath: /one/info, subPath: name}
- {name: readonly, image: HELLO, args: [write, /host/x, x], volumeMounts: [{name: host, mountPath: /host, subPath: v1, readOnly: true}]}
volumes:
- {name: data, emptyDir: {}}
- {name: memory, emptyDir: {medium: Memory}}
- {name: host, hostPath: {path: %s}}
- {name: colors, configMap: {name: colors}}
- {name: words, secret: {secretName: words}}
- {name: all, projected: {sources: [{downwardAPI: {items: [{path: in/name, fieldRef: {fieldPath: metadata.name}}]}}]}}
- {name: info, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}`, onNode("p"), host))))
		c := up(t, s, "p", "c")
		logged := "host\nhost\nCOLOR\nhush\n" + onNode("p") + "\n" + onNode("p") + "\n"
		awaitLogs(t, s, c.Id, strings.ReplaceAll(logged, "COLOR", "red"))
		if c := down(t, s, "p", "readonly"); c.ExitCode != 1 || !absent(filepath.Join(host, "v1/x")) {
			t.Errorf("a part that is read-only was written: %+v", c)
		}
		before := podMounts(t, a)
		if parts := slices.DeleteFunc(slices.Clone(before),
			func(m string) bool { return !strings.Contains(m, "/volume-subpaths/") }); len(parts) != 10 || len(before) != 14 {
			t.Errorf("%d parts are bound, of %d mounts: %v", len(parts), len(before), before)
		}
		must(t, a.Kill9())
		must(t, a.Start())
		settled(t, a)
		awaitPod(t, a, "p", inPhase(corev1.PodRunning))
		asStarted(t, s, containersOf(t, s, "p", "c"))
		// A file that is bound stays the one that it was; the next container sees the new one.
		uid := c.Labels[stack.UIDLabel]
		putObject(t, objects, "objects.yaml", strings.ReplaceAll(colors, "COLOR", "blue"))
		awaitFile(t, volumeOf(a, uid, "configmap", "colors", "color"), "blue")
		next := killed(t, s, "p", "c")
		awaitLogs(t, s, next.Id, strings.ReplaceAll(logged, "COLOR", "blue"))
		if now := podMounts(t, a); !slices.Equal(now, before) {
			t.Errorf("mounted was %v, and is %v", before, now)
		}
		must(t, a.Remove("p.yaml"))
		cleared(t, s, a)
		if left := podMounts(t, a); len(left) > 0 {
			t.Errorf("still mounted: %v", left)
		}
		if absent(filepath.Join(host, "v1/file")) {
			t.Error("the host's file went with the pod")
		}
	})
}

// A path that cannot be a part of its volume keeps the container from being made, with the reason. An absent key is an empty
// folder.
func TestSubPathsThatCannotBe(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	dir := t.TempDir()
	objects, host := filepath.Join(dir, "objects"), filepath.Join(dir, "host")
	must(t, os.Mkdir(host, 0o755))
	must(t, os.WriteFile(filepath.Join(host, "file"), nil, 0o644))
	must(t, os.Symlink("..", filepath.Join(host, "up")))
	must(t, os.Symlink("/etc", filepath.Join(host, "etc")))
	putObject(t, objects, "objects.yaml", colors)
	a := agentWith(t, s, func(a *stack.Agent) { quick(a); a.Args = append(a.Args, "--object-dir="+objects) })
	type pod struct{ name, mount, want string }
	missing := pod{"key", "name: colors, subPath: colour", ""}
	cases := []pod{
		{"unknown", "name: host, subPathExpr: a/$(NONE)", "no value for NONE"},
		{"back", "name: host, subPathExpr: $(UP)", "plain relative path"},
		{"up", "name: host, subPath: up/new", "leads out of the volume"},
		{"etc", "name: host, subPath: etc/hostname", "leads out of the volume"},
		{"file", "name: host, subPath: file/new", "no folder"},
	}
	for _, c := range append(cases, missing) {
		must(t, a.Write(c.name+".yaml", manifest(s, c.name, fmt.Sprintf(`
terminationGracePeriodSeconds: 5
containers: [{name: c, image: HELLO, args: [sleep], env: [{name: UP, value: ../..}], volumeMounts: [{mountPath: /v, %s}]}]
volumes: [{name: host, hostPath: {path: %s}}, {name: colors, configMap: {name: colors}}]`, c.mount, host))))
	}
	for _, c := range cases {
		p := awaitPod(t, a, c.name, waitsFor("CreateContainerConfigError"))
		if text := statusOf(p, "c").State.Waiting.Message; !strings.Contains(text, c.want) {
			t.Errorf("%s waits with %q, want %q", c.name, text, c.want)
		}
		if all := containersOf(t, s, c.name); len(all) > 0 {
			t.Errorf("%s: there are containers: %v", c.name, all)
		}
	}
	uid := up(t, s, missing.name, "c").Labels[stack.UIDLabel]
	if info, err := os.Stat(volumeOf(a, uid, "configmap", "colors", "colour")); err != nil || !info.IsDir() {
		t.Errorf("in place of the absent key is %v, %v", info, err)
	}
	for _, c := range append(cases, missing) {
		must(t, a.Remove(c.name+".yaml"))
	}
	cleared(t, s, a)
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("beside the volume there are %v, %v", names, err)
	}
}
