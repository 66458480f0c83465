//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// row waits until the table of `playlet pods` has a line with these columns, and returns the output on stderr.
func row(t *testing.T, socket string, args []string, columns ...string) (stderr string) {
	t.Helper()
	await(t, func() error {
		out, errs, code := playlet(t, append(args, socket)...)
		if code != 0 {
			return fmt.Errorf("exit code %d: %s", code, errs)
		}
		stderr = errs
		return hasRow(out, columns...)
	})
	return stderr
}

func hasRow(table string, columns ...string) error {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) >= len(columns) && slices.Equal(fields[:len(columns)], columns) {
			return nil
		}
	}
	return fmt.Errorf("no row %q in\n%s", columns, table)
}

// The commands of the real binary, beside an agent that runs real pods: tables for people, objects for programs, all that
// is wrong on stderr.
func TestCommands(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		socket := "--admin-socket=" + a.AdminSocket
		settled(t, a)
		info, err := os.Stat(a.AdminSocket)
		must(t, err)
		if info.Mode() != fs.ModeSocket|0o600 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("the socket is %v of user %d", info.Mode(), info.Sys().(*syscall.Stat_t).Uid)
		}
		if out, errs, code := playlet(t, "pods", socket); out != "" || errs != "no pods\n" || code != 0 {
			t.Errorf("with no pods: %d %q %q", code, out, errs)
		}

		must(t, a.Write("web.yaml", strings.Replace(manifest(s, "web", sleeper), "{name: web}", "{name: web, namespace: apart}",
			1)))
		must(t, a.Write("stuck.yaml", policyPod(s, "stuck", s.Registry.Ref("missing"), "")))
		must(t, a.Write("bad.yaml", manifest(s, "bad", "runtimeClassName: other\ncontainers: [{name: c, image: HELLO}]")))
		must(t, a.Write("worse.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: worse}\nspec: {containers: {}}\n"))
		row(t, socket, []string{"pods"}, "NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP")
		row(t, socket, []string{"pods"}, "apart", onNode("web"), "1/1", "Running", "0")
		row(t, socket, []string{"pods"}, "default", onNode("stuck"), "0/1", "ErrImagePull", "0")
		for _, want := range []string{
			"default/" + onNode("stuck") + ": container c: image " + s.Registry.Ref("missing") + " not found in its registry",
			"manifest problem: " + a.ManifestDir +
				"/bad.yaml:5: spec.runtimeClassName: Forbidden: a static pod cannot refer to runtime classes",
			"manifest problem: " + a.ManifestDir + "/worse.yaml:4: ",
		} {
			await(t, func() error { // a file that was just written is given a moment before it counts as wrong
				if _, errs, _ := playlet(t, "pods", socket); !strings.Contains(errs, want) {
					return fmt.Errorf("stderr does not say %q:\n%s", want, errs)
				}
				return nil
			})
		}
		row(t, socket, []string{"pods", "-n", "apart"}, "apart", onNode("web"))
		row(t, socket, []string{"pods", "web"}, "apart", onNode("web")) // by its name in the manifest
		objects(t, s, socket)

		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"pods", "nobody", socket}, `there is no pod "nobody" in any namespace`},
			{[]string{"pods", "we", socket}, `there is no pod "we" in any namespace`},
			{[]string{"pods", onNode("web"), "-n", "default", "-o", "yaml", socket}, `there is no pod "` + onNode("web") + `" in namespace "default"`},
			{[]string{"pods", "-o", "xml", socket}, `"xml"`},
			{[]string{"pods", "--admin-socket=" + a.RootDir + "/none"}, "not running (no socket at " + a.RootDir + "/none)"},
			{[]string{"pods", "-w", "--admin-socket=" + a.RootDir + "/none"}, "not running"},
		} {
			out, errs, code := playlet(t, c.args...)
			last := errs[strings.LastIndex(strings.TrimSuffix(errs, "\n"), "\n")+1:]
			if code != 1 || out != "" || !strings.HasPrefix(last, "playlet: ") || !strings.Contains(last, c.want) {
				t.Errorf("%v: exit code %d, %q, stderr %q", c.args, code, out, errs)
			}
		}
		versions(t, s, socket)
		if code, err := a.Term(); err != nil || code != 0 {
			t.Errorf("the agent ended with %d, %v", code, err)
		}
		if _, errs, code := playlet(t, "pods", socket); code != 1 || !strings.Contains(errs, "playlet is not running") {
			t.Errorf("after its end: %d %q", code, errs)
		}
	})
}

// objects compares the machine-readable output with the running pods.
func objects(t *testing.T, s *stack.Stack, socket string) {
	t.Helper()
	c := up(t, s, "web", "c")
	for _, form := range []string{"yaml", "json"} {
		out, errs, code := playlet(t, "pods", onNode("web"), "-o", form, socket)
		pod := &corev1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(out), pod); err != nil || code != 0 || errs != "" {
			t.Errorf("-o %s: %d, %v, %q", form, code, err, errs)
		}
		if pod.Kind != "Pod" || pod.APIVersion != "v1" || pod.Name != onNode("web") ||
			string(pod.UID) != c.Labels[stack.UIDLabel] ||
			pod.Status.Phase != corev1.PodRunning || len(pod.Status.ContainerStatuses) != 1 ||
			pod.Status.ContainerStatuses[0].ContainerID != "containerd://"+c.Id {
			t.Errorf("-o %s: %s", form, out)
		}
		out, errs, code = playlet(t, "pods", "-o", form, socket)
		list := &corev1.PodList{}
		if err := yaml.UnmarshalStrict([]byte(out), list); err != nil || code != 0 || len(list.Items) != 2 {
			t.Errorf("-o %s of all: %d, %v, %q\n%s", form, code, err, errs, out)
		}
	}
}

// versions checks the versions of the binary, of the agent, which is the same, and of the runtime.
func versions(t *testing.T, s *stack.Stack, socket string) {
	t.Helper()
	out, errs, code := playlet(t, "version", "-o", "json", socket)
	var v struct {
		Client, Agent struct {
			Version, Go string
			Runtime     struct {
				Name, Version string
				Ready         bool
			}
		}
	}
	err := json.Unmarshal([]byte(out), &v)
	want := map[stack.Runtime]string{stack.Containerd2: "v2.4.2", stack.Containerd1: "1.6.20"}[s.Kind()]
	if err != nil || code != 0 || errs != "" || v.Client.Version == "" || v.Client.Version != v.Agent.Version ||
		v.Agent.Go == "" ||
		v.Agent.Runtime.Name != "containerd" || !strings.HasPrefix(v.Agent.Runtime.Version, want) || !v.Agent.Runtime.Ready {
		t.Errorf("%d, %v, %q\n%s", code, err, errs, out)
	}
	out, _, _ = playlet(t, "version", socket)
	if !strings.Contains(out, "Runtime: containerd "+want) {
		t.Errorf("the runtime is not %s: %s", want, out)
	}
}

// `playlet pods -w` goes on through the comings and goings of pods and of the agent, until it is interrupted.
func TestPodsWatched(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := s.Agent(t)
	must(t, a.Write("first.yaml", manifest(s, "first", sleeper)))
	awaitPod(t, a, "first", ready)
	w := begin(t, "pods", "-w", "--admin-socket="+a.AdminSocket)
	shows := func(columns ...string) {
		t.Helper()
		await(t, func() error { return hasRow(w.log.String(), columns...) })
	}
	shows("NAMESPACE", "NAME", "READY", "STATUS")
	shows("default", onNode("first"), "1/1", "Running")
	// The stream may omit quick changes: the pod is held while it starts, and while it ends.
	push(t, s, "held", "")
	release := make(chan struct{})
	s.Registry.Intercept(func(*http.Request) devimages.Fault { return devimages.Fault{Until: release} })
	must(t, a.Write("second.yaml", strings.ReplaceAll(manifest(s, "second",
		"terminationGracePeriodSeconds: 600\ncontainers: [{name: c, image: HELLO, args: [ignore-term]}]"), s.HelloImage(),
		s.Registry.Ref("held"))))
	shows("default", onNode("second"), "0/1", "ContainerCreating")
	await(t, func() error {
		if said := w.log.String(); !strings.Contains(said, "default/"+onNode("second")+": container c: image "+s.Registry.Ref("held")+" is being pulled") {
			return fmt.Errorf("the pull is not spoken of:\n%s", said)
		}
		return nil
	})
	close(release)
	shows("default", onNode("second"), "1/1", "Running")
	pid, err := s.ContainerPID(t.Context(), up(t, s, "second", "c").Id)
	must(t, err)
	must(t, a.Remove("second.yaml"))
	shows("default", onNode("second"), "1/1", "Terminating")
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	shows("default", onNode("second"), "-", "Gone")
	must(t, a.Kill9())
	must(t, a.Start())
	must(t, a.Write("third.yaml", manifest(s, "third", sleeper)))
	shows("default", onNode("third"), "1/1", "Running")
	w.end(t, syscall.SIGINT)
	if n := strings.Count(w.log.String(), "NAMESPACE"); n != 1 {
		t.Errorf("the heading is printed %d times", n)
	}
}

// The checks of /healthz have names, and each can be asked for alone.
func TestHealthChecksHaveNames(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := s.Agent(t)
	settled(t, a)
	status, text, err := a.Healthz(t.Context(), "?verbose")
	must(t, err)
	if status != 200 || !strings.HasSuffix(text, "healthz check passed\n") {
		t.Errorf("%d %s", status, text)
	}
	for _, check := range []string{"ping", "runtime", "supervisors", "sources", "pods", "listeners", "probes"} {
		if !strings.Contains(text, "[+]"+check+" ok\n") {
			t.Errorf("there is no check %s: %s", check, text)
		}
		if status, text, err := a.PublicHealthz(t.Context(), "/"+check); err != nil || status != 200 {
			t.Errorf("check %s alone: %d %q, %v", check, status, text, err)
		}
	}
	if status, text, err := a.PublicHealthz(t.Context(), ""); err != nil || status != 200 || text != "ok" {
		t.Errorf("%d %q, %v", status, text, err)
	}
	if status, _, err := a.PublicHealthz(t.Context(), "/no-such-check"); err != nil || status != 404 {
		t.Errorf("a check that there is not: %d, %v", status, err)
	}
}

// The completion for bash is a script that bash takes, and completes.
func TestCompletionInBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	out, errs, code := playlet(t, "completion", "bash")
	if code != 0 || errs != "" {
		t.Fatalf("%d %q", code, errs)
	}
	script := put(t, filepath.Join(t.TempDir(), "completion"), out)
	if out, err := exec.Command(bash, "-n", script).CombinedOutput(); err != nil {
		t.Errorf("bash does not take it: %v\n%s", err, out)
	}
	// The package bash-completion may be missing: a function replaces its part.
	cmd := exec.Command(bash, "-c", `_get_comp_words_by_ref() { cur=ver words=(playlet ver) cword=1 prev=playlet; }
. "$1"; COMP_WORDS=(playlet ver) COMP_CWORD=1 COMP_TYPE=9; __start_playlet; echo "${COMPREPLY[@]}"`, "bash", script)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program())+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "version") {
		t.Errorf("completing `playlet ver`: %v %q", err, out)
	}
}
