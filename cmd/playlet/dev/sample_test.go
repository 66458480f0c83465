package dev

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/config"
)

// helloOn serves like the sample pod, at its address. The first bad answers are wrong.
func helloOn(t *testing.T, ip string, bad int) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(samplePort)))
	if err != nil {
		t.Skipf("not tried: %v", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if bad--; bad >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte("Hello from a test\n"))
	})}
	done := make(chan struct{})
	go func() { _ = server.Serve(l); close(done) }()
	t.Cleanup(func() { must(t, server.Close()); <-done })
}

func sampleNode(t *testing.T) *node {
	t.Helper()
	n := aNode(&buffer{})
	n.folder = folder(t.TempDir())
	write(t, n.folder.samplePath(), sampleManifest)
	return n
}

func TestTheSampleIsAwaitedAndAsked(t *testing.T) {
	helloOn(t, "127.0.0.1", 2)
	n := sampleNode(t)
	n.plan.AdminSocket = agentThatTells(t, []api.Change{
		{Full: true, Pods: []api.Pod{onePod("theirs", "1", "192.0.2.9")}},
		{Pods: []api.Pod{onePod("hello-vm", "2", "")}},
		{Pods: []api.Pod{onePod("hello-vm", "2", "127.0.0.1")}},
	})
	var waits []string
	done, err := n.awaitSample(t.Context(), func(what string) { waits = append(waits, what) })
	if err != nil || done != `http://127.0.0.1:8080/ says "Hello from a test"` || n.url != "http://127.0.0.1:8080/" {
		t.Errorf("%q, %v, %s", done, err, n.url)
	}
	if got := strings.Join(waits, ","); got != "Running,Running 127.0.0.1" {
		t.Errorf("it waits for %q", got)
	}
}

func TestASampleOfTheUsersIsNotAwaited(t *testing.T) {
	n := sampleNode(t)
	for _, change := range []func(){
		func() { write(t, n.folder.samplePath(), sampleManifest+"\n") },
		func() { must(t, os.Remove(n.folder.samplePath())) },
	} {
		change()
		n.plan.Once = false
		if done, err := n.awaitSample(t.Context(), nil); err != nil || done != "none: there are manifests of yours" {
			t.Errorf("%q, %v", done, err)
		}
		n.plan.Once = true
		if _, err := n.awaitSample(t.Context(), nil); err == nil || !strings.HasPrefix(err.Error(), "there is nothing to check") {
			t.Errorf("%v", err)
		}
	}
}

func TestTheAgentIsAwaited(t *testing.T) {
	n := aNode(&buffer{})
	ready := &api.Node{Runtime: api.Runtime{Ready: true}}
	unheard := *ready
	unheard.Unheard = append(unheard.Unheard, "sources/file")
	n.plan.AdminSocket = agentThatTells(t, []api.Change{{Full: true, Node: &api.Node{}}, {Node: &unheard}, {Node: ready}})
	waits := 0
	must(t, n.awaitAgent(t.Context(), func(string) { waits++ }))
	if waits != 2 {
		t.Errorf("it has waited %d times", waits)
	}
	n.agent.Failed = closedWith(fmt.Errorf("broken"))
	n.plan.AdminSocket += "-none"
	if err := n.awaitAgent(t.Context(), func(string) {}); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
}

func TestDirectionsCanBeTypedAsTheyAre(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a folder")
	for _, name := range []string{"containerd", "ctr"} {
		program(t, filepath.Join(dir, name), "exit 0")
	}
	t.Setenv("PATH", "/nowhere")
	t.Setenv("SUDO_UID", "")
	n := aNode(&buffer{})
	n.folder, n.plan.Programs.Containerd, n.plan.Temporary = "/tmp/playlet-dev-x", dir+"/containerd", true
	n.plan.AdminSocket, n.url = config.DefaultAdminSocket, "http://192.0.2.1:8080/"
	n.plan.Programs.Busybox = "/bin/busybox"
	n.page = "http://127.0.0.1:4195/?token=x"
	text := n.directions()
	self, err := os.Executable()
	must(t, err)
	first := "\n  The web page:          http://127.0.0.1:4195/?token=x\n  In another terminal:   alias playlet=" + self + "\n"
	if !strings.HasPrefix(text, first) {
		t.Errorf("it does not begin with %q:\n%s", first, text)
	}
	for _, want := range []string{
		"Reach the sample pod:  http://192.0.2.1:8080/\n", "Follow its log:        playlet logs -f hello\n",
		"A shell in it:         playlet exec -it hello -- sh\n", "See pods, and why:     playlet pods -w\n",
		"Add a pod that fails:  playlet run -f /tmp/playlet-dev-x/broken.yaml\n", "Explain the failure:   playlet explain broken\n",
		"Heal it:               playlet run -f /tmp/playlet-dev-x/greeting.yaml\n",
		"Trace a start:         playlet trace hello\n", "Break its actor:       playlet chaos kill pods/hello\n",
		"put manifests into /tmp/playlet-dev-x/manifests; they go when this ends, --dir keeps them\n",
		"Ask containerd:        " + quoted(dir+"/ctr") +
			" --address /tmp/playlet-dev-x/containerd.sock --namespace k8s.io containers list\n",
		"Logs:                  /tmp/playlet-dev-x/agent.log, containerd.log beside it\n", "End it:                Ctrl-C\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	t.Setenv("PATH", dir)
	for _, command := range []string{"wget -qO- ", "curl "} { // the first one that is there
		program(t, filepath.Join(dir, strings.Fields(command)[0]), "exit 0")
		if want := "pod:  " + command + "http://192.0.2.1:8080/\n"; !strings.Contains(n.directions(), want) {
			t.Errorf("%q is not in\n%s", want, n.directions())
		}
	}
	n.plan.Programs.Busybox = ""
	if want := "A command in it:       playlet exec hello -- hello env\n"; !strings.Contains(n.directions(), want) {
		t.Errorf("%q is not in\n%s", want, n.directions())
	}
	t.Setenv("SUDO_UID", "1000")
	n.plan.AdminSocket, n.plan.Temporary, n.url = "/a b/admin.sock", false, ""
	text = n.directions()
	for _, want := range []string{
		"  alias playlet=" + quoted("sudo env 'PLAYLET_SOCKET=/a b/admin.sock' "+self) + "\n", ":     playlet pods -w\n", "/manifests; they stay when this ends\n",
		" sudo ctr --address ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "curl") || strings.Contains(text, "exec") {
		t.Errorf("a sample that is not there is reached:\n%s", text)
	}
	program(t, filepath.Join(dir, "crictl"), "exit 0")
	must(t, os.Symlink(self, filepath.Join(dir, "playlet")))
	if text = n.directions(); !strings.Contains(text, "alias playlet="+quoted("sudo env 'PLAYLET_SOCKET=/a b/admin.sock' playlet")+"\n") {
		t.Errorf("the socket is in no alias:\n%s", text)
	}
	n.plan.AdminSocket = config.DefaultAdminSocket
	text = n.directions()
	if !strings.Contains(text, " sudo crictl --runtime-endpoint unix:///tmp/playlet-dev-x/containerd.sock ps\n") ||
		!strings.Contains(text, "sudo playlet pods") || strings.Contains(text, "alias") {
		t.Errorf("%s", text)
	}
}

func TestAShellReadsWhatIsQuoted(t *testing.T) {
	for _, arg := range []string{"", "a", "a b", "it's", "$HOME", "`x`", "a;b", "ä/€", "*", "~", "#", "\"", "\\", "--x=/a.b:c,d@e%f+g_h"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quoted(arg)).Output()
		if err != nil || string(out) != arg {
			t.Errorf("%q is read as %q from %s, %v", arg, out, quoted(arg), err)
		}
	}
	if quoted("/usr/bin/playlet") != "/usr/bin/playlet" {
		t.Error("what needs no quotes has some")
	}
}
