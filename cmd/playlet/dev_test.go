package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

func TestDevHelps(t *testing.T) {
	var out, problems bytes.Buffer
	if code := run([]string{"dev", "--help"}, &out, &problems); code != 0 || problems.Len() > 0 {
		t.Fatalf("%d %s", code, &problems)
	}
	help := out.String()
	for _, want := range []string{
		"Examples:\n", "  playlet dev --install\n", "  playlet dev --once\n", "  playlet dev --clean\n",
		"--dir folder ", "--programs folders ", "--admin-socket socket ",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("%q is not in\n%s", want, help)
		}
	}
	if strings.Contains(help, "Available Commands") {
		t.Errorf("stages are shown:\n%s", help)
	}
	out.Reset()
	if run([]string{"--help"}, &out, &problems); !strings.Contains(out.String(), "  dev ") {
		t.Errorf("playlet --help does not list it:\n%s", &out)
	}
}

func TestDevRefusesInOneLine(t *testing.T) {
	for args, want := range map[string]string{
		"dev --nonsense": "playlet: unknown flag: --nonsense (playlet dev --help lists the flags)\n",
		"dev nonsense":   "playlet: unknown command \"nonsense\" for \"playlet dev\"\n",
		"dev init /tmp":  "playlet: this is started by playlet dev itself\n",
		"--nonsense":     "playlet: unknown flag: --nonsense (playlet --help lists the flags)\n",
	} {
		var out, problems bytes.Buffer
		if code := run(strings.Fields(args), &out, &problems); code != 1 || problems.String() != want || out.Len() > 0 {
			t.Errorf("%s: %d %q %q, want %q", args, code, &problems, &out, want)
		}
	}
}

func TestDevSaysAPodInAFewWords(t *testing.T) {
	p := &admin.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}}
	p.Pod.Status.Phase = v1.PodPending
	p.Waiting = &admin.Reason{Code: "ImagePullBackOff", Message: "no such\timage", RetryAt: time.Now().Add(time.Hour)}
	first := devStatus(p)
	if !strings.HasPrefix(first, "Pending  0/1 ready  (") || !strings.Contains(first, "ImagePullBackOff: no such") || strings.Contains(first, "\t") {
		t.Errorf("%q", first)
	}
	if again := devStatus(p); again != first {
		t.Errorf("it changes with time: %q, %q", first, again)
	}
	p.Waiting = nil
	p.Pod.Status = v1.PodStatus{Phase: v1.PodRunning, PodIP: "192.0.2.1", PodIPs: []v1.PodIP{{IP: "192.0.2.1"}}, ContainerStatuses: []v1.ContainerStatus{
		{Name: "c", Ready: true, RestartCount: 2, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
	}}
	if got := devStatus(p); got != "Running  1/1 ready  192.0.2.1  2 restarts" {
		t.Errorf("%q", got)
	}
}

// What to do about the runtime is not said where `playlet dev` does it.
func TestDevNotesAreForOnesOwnContainerd(t *testing.T) {
	n := &admin.Node{Unheard: []messages.Address{"sources/file"}}
	n.Runtime.Reason = &admin.Reason{Code: "RuntimeUnavailable", Message: "start it (systemctl start containerd)"}
	rest := "sources/file has not been heard yet; what it wants is not shown"
	if got := devNotes(n); !slices.Equal(got, []string{"containerd is not ready: RuntimeUnavailable", rest}) {
		t.Errorf("%q", got)
	}
	n.Runtime = admin.Runtime{Ready: true, NetworkReason: "no bridge"}
	if got := devNotes(n); len(got) != 2 || !strings.Contains(got[0], "no bridge") || got[1] != rest {
		t.Errorf("%q", got)
	}
}

// The agent is started by its own command line; a wrong one, or one that cannot start, leaves nothing running.
func TestDevStartsAnAgent(t *testing.T) {
	r := newRig(t, sim.Options{})
	root := filepath.Join(r.dir, "root")
	args := []string{
		"--root-dir=" + root, "--pod-manifest-path=" + r.manifests, "--fail-cgroupv1=false", "--healthz-port=0",
		"--container-runtime-endpoint=" + r.runtime.Endpoint(), "--admin-socket=" + filepath.Join(r.dir, "admin.sock"),
		"--hostname-override=vm", "--node-ip=192.0.2.7", "--log-links-dir=" + filepath.Join(r.dir, "links"),
	}
	config := filepath.Join(r.dir, "config.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodLogsDir: " + r.dir + "/logs\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append(args, "--config="+config)
	for range 2 { // the second finds nothing of the first
		a, err := startDevAgent(args, r.log)
		if err != nil {
			t.Fatal(err)
		}
		if a.NodeName != "vm" {
			t.Errorf("the node is %s", a.NodeName)
		}
		if _, err := startDevAgent(args, r.log); err == nil || !strings.Contains(err.Error(), root) {
			t.Errorf("a second one beside it: %v", err)
		}
		r.untilPrinted([]string{"pods"}, "no pods")
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, wrong := range []string{"--nonsense", "--config=/nowhere"} {
		if _, err := startDevAgent([]string{wrong}, r.log); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}
