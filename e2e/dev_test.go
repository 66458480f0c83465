//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// A newcomer's steps: start, follow each of the printed directions, try the failures that it survives, press Ctrl-C. Nothing
// remains.
func TestDev_RunsANodeAndCleansUp(t *testing.T) {
	for _, kind := range stack.Runtimes {
		t.Run(string(kind), func(t *testing.T) {
			if kind == stack.Containerd1 {
				anotherAgent(t)
			}
			forwardsNothing(t)
			before := machine(t)
			d := startDev(t, kind)
			d.printed(`End it: +Ctrl-C`)
			greets(t, d.printed(`Reach the sample pod: .*(http\S+)`))
			d.followsDirections()
			d.runsManifests("two")
			d.failsToPull()
			d.refusesASecond(kind)
			d.survivesItsRuntime()
			d.survivesItsShims()
			d.ends(syscall.SIGINT, 0)
			d.printed(`clean-up: the machine is as it was`)
			asBefore(t, before)
		})
	}
}

// anotherAgent takes the usual admin socket, as an agent that runs on the machine already.
func anotherAgent(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll("/run/playlet", 0o755))
	l, err := net.Listen("unix", "/run/playlet/admin.sock")
	must(t, err)
	t.Cleanup(func() {
		_ = l.Close() // its file is removed with the folder
		must(t, os.RemoveAll("/run/playlet"))
	})
}

// forwardsNothing makes the machine one that is not prepared for pods.
func forwardsNothing(t *testing.T) {
	t.Helper()
	const file = "/proc/sys/net/ipv4/ip_forward"
	must(t, os.WriteFile(file, []byte("0"), 0o644))
	t.Cleanup(func() { must(t, os.WriteFile(file, []byte("1"), 0o644)) })
}

// greets waits until a hello server answers.
func greets(t *testing.T, url string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	await(t, func() error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // read to the end
		text, err := io.ReadAll(resp.Body)
		if err == nil && !strings.HasPrefix(string(text), "Hello from ") {
			err = fmt.Errorf("%s answers %q", url, text)
		}
		return err
	})
}

// direction gives the command behind a heading, as it was printed, with the printed alias in force: a shell that reads no
// terminal has none.
func (d *devRun) direction(heading string) string {
	d.t.Helper()
	alias := strings.Trim(d.printed(`In another terminal: +alias playlet=(.*)\n`), "'")
	command := strings.TrimSpace(d.printed(regexp.QuoteMeta(heading) + ` +(.*)\n`))
	return regexp.MustCompile(`(^|; )playlet `).ReplaceAllString(command, "${1}"+alias+" ")
}

func (d *devRun) followsDirections() {
	d.t.Helper()
	out, err := exec.Command("sh", "-c", d.direction("Ask containerd:")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "playlet.local/hello:1") {
		d.t.Errorf("%s: %v\n%s", d.direction("Ask containerd:"), err, out)
	}
	for _, file := range strings.Split(d.direction("Logs:"), ", ") {
		file = filepath.Join(d.folder(), filepath.Base(strings.TrimSuffix(file, " beside it")))
		if info, err := os.Stat(file); err != nil || info.Size() == 0 {
			d.t.Errorf("log %s: %v", file, err)
		}
	}
	out, err = exec.Command("sh", "-c", strings.Replace(d.direction("Follow its log:"), " -f ", " ", 1)).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "listening\nGET /\n") {
		d.t.Errorf("%s: %v\n%s", d.direction("Follow its log:"), err, out)
	}
	shell := exec.Command("sh", "-c", strings.Replace(d.direction("A shell in it:"), " -it ", " -i ", 1))
	shell.Stdin = strings.NewReader("ls -d /etc && hostname\nexit 7\n")
	out, _ = shell.CombinedOutput() // its exit code counts
	if code := shell.ProcessState.ExitCode(); code != 7 || string(out) != "/etc\n"+onNode("hello")+"\n" {
		d.t.Errorf("%s: code %d\n%s", d.direction("A shell in it:"), code, out)
	}
	watch := exec.Command("sh", "-c", "exec "+d.direction("See pods, and why:"))
	read, err := watch.StdoutPipe()
	must(d.t, err)
	must(d.t, watch.Start())
	lines := bufio.NewScanner(read)
	seen := false
	for !seen && lines.Scan() {
		seen = strings.HasPrefix(lines.Text(), "default     hello-"+isolate.HostName) && strings.Contains(lines.Text(), "Running")
	}
	if !seen {
		d.t.Errorf("%s has ended without the sample pod", watch)
	}
	must(d.t, watch.Process.Kill())
	_ = watch.Wait() // killed
}

// pods returns the pods listed by the printed command.
func (d *devRun) pods() []corev1.Pod {
	d.t.Helper()
	out, err := exec.Command("sh", "-c", strings.Replace(d.direction("See pods, and why:"), " -w", " -o json", 1)).Output()
	must(d.t, err)
	list := &corev1.PodList{}
	must(d.t, json.Unmarshal(out, list))
	return list.Items
}

// runsManifests puts a pod with a port of the machine's beside the sample, and reaches it there.
func (d *devRun) runsManifests(name string) {
	d.t.Helper()
	text := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: hello,
		image: "playlet.local/hello:1", ports: [{containerPort: 8080, hostPort: 18080}]}]}}`, name)
	file := filepath.Join(d.direction("Run more of them:")[len("put manifests into "):])
	file, _, _ = strings.Cut(file, ";")
	must(d.t, os.WriteFile(file+"/"+name+".yaml", []byte(text), 0o644))
	d.printed(`default/` + onNode(name) + `  Running  1/1 ready`)
	greets(d.t, "http://"+isolate.NodeIP+":18080/")
	must(d.t, os.Remove(file+"/"+name+".yaml"))
	d.printed(`default/` + onNode(name) + `  gone`)
}

// failsToPull runs a pod with a missing image: the cause is printed once, despite further attempts.
func (d *devRun) failsToPull() {
	d.t.Helper()
	file := d.folder() + "/manifests/absent.yaml"
	must(d.t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Pod, metadata: {name: absent}, spec: {
		containers: [{name: c, image: "playlet.local/absent:1"}]}}`), 0o644))
	const cause = "image playlet.local/absent:1 not found in its registry"
	d.printed(`default/` + onNode("absent") + ` .*` + cause)
	await(d.t, func() error { // its status has changed since
		for _, p := range d.pods() {
			if p.Name == onNode("absent") {
				if w := statusOf(&p, "c").State.Waiting; w == nil || w.Reason != "ImagePullBackOff" {
					return fmt.Errorf("the pod waits for %+v", w)
				}
				return nil
			}
		}
		return errors.New("the pod is not there")
	})
	must(d.t, os.Remove(file))
	d.printed(`default/` + onNode("absent") + `  gone`)
	if n := strings.Count(d.out.String(), cause); n != 1 {
		d.t.Errorf("the cause is told %d times", n)
	}
}

func (d *devRun) refusesASecond(kind stack.Runtime) {
	d.t.Helper()
	for _, flag := range []string{"--once", "--clean"} {
		second := startDev(d.t, kind, flag)
		second.ends(0, 1)
		want := fmt.Sprintf("playlet: playlet dev runs already: process %d, in %s; end that one first\n", d.cmd.Process.Pid,
			d.folder())
		if got := second.out.String(); got != want {
			d.t.Errorf("a second one with %s says %q, want %q", flag, got, want)
		}
	}
}

// survivesItsRuntime kills containerd: it is started again, the pods run on, and the next one can come.
func (d *devRun) survivesItsRuntime() {
	d.t.Helper()
	containers := func() (out []string) {
		for _, p := range d.pods() {
			for _, c := range p.Status.ContainerStatuses {
				out = append(out, fmt.Sprint(p.Name, c.ContainerID, c.RestartCount))
			}
		}
		return out
	}
	before := fmt.Sprint(containers())
	pids := processesOf(d.t, "containerd --config "+d.folder())
	if len(pids) != 1 {
		d.t.Fatalf("containerd is %v", pids)
	}
	must(d.t, syscall.Kill(pids[0], syscall.SIGKILL))
	d.printed(`containerd has ended: signal: killed; starting it again in \S+`)
	d.runsManifests("three")
	if after := fmt.Sprint(containers()); after != before {
		d.t.Errorf("containers %s became %s", before, after)
	}
}

// survivesItsShims kills the pods' shims: the sample is restarted with another address, and that is printed.
func (d *devRun) survivesItsShims() {
	d.t.Helper()
	old := d.printed(`Reach the sample pod: .*(http\S+)`)
	shims := processesOf(d.t, "containerd-shim-runc-v2", "-address "+d.folder())
	if len(shims) == 0 {
		d.t.Fatal("no shim runs")
	}
	for _, pid := range shims {
		must(d.t, syscall.Kill(pid, syscall.SIGKILL))
	}
	await(d.t, func() error {
		if d.printed(`Reach the sample pod: .*(http\S+)`) == old {
			return fmt.Errorf("no other address than %s is printed", old)
		}
		return nil
	})
	greets(d.t, d.printed(`Reach the sample pod: .*(http\S+)`))
}

// If any part of it is killed, no process, mount or network survives: leftovers are removed by the next run, or by itself if its
// outermost process survives.
func TestDevIsKilled(t *testing.T) {
	for _, kind := range stack.Runtimes {
		t.Run(string(kind), func(t *testing.T) {
			before := machine(t)
			d := startDev(t, kind)
			d.printed(`End it: +Ctrl-C`)
			folder, pid := d.folder(), d.cmd.Process.Pid
			d.ends(syscall.SIGKILL, -1)
			await(t, func() error {
				if left := processesOf(t, folder); len(left) > 0 {
					return fmt.Errorf("processes %v live on", left)
				}
				return nil
			})
			next := startDev(t, kind, "--once")
			next.ends(0, 0)
			next.printed(fmt.Sprintf(`leftovers: removed what an earlier run \(process %d\) had left`, pid))
			next.printed(`pod hello: \S+ says "Hello from hello-` + isolate.HostName)
			asBefore(t, before)

			again := startDev(t, kind)
			again.printed(`End it: +Ctrl-C`)
			again.ends(syscall.SIGKILL, -1)
			for _, want := range []string{`leftovers: removed`, `^nothing was left\n$`} {
				clean := startDev(t, kind, "--clean")
				clean.ends(0, 0)
				clean.printed(want)
				asBefore(t, before)
			}
			for _, stage := range []string{"init", "node"} {
				d := startDev(t, kind)
				d.printed(`End it: +Ctrl-C`)
				must(t, syscall.Kill(processesOf(t, "dev "+stage+" "+d.folder())[0], syscall.SIGKILL))
				d.ends(0, 1)
				d.printed(`playlet: the node .*: killed\n`)
				asBefore(t, before)
			}
		})
	}
}

// Neither Ctrl-C nor a death waits for a good moment.
func TestDevIsInterruptedWhileItStarts(t *testing.T) {
	before := machine(t)
	for i, moment := range []string{"A node", "programs:", "images:", "containerd:", "agent:"} {
		d := startDev(t, stack.Runtimes[i%2])
		d.printed(moment)
		d.ends(syscall.SIGINT, 0)
		asBefore(t, before)

		d = startDev(t, stack.Runtimes[(i+1)%2])
		d.printed(moment)
		d.ends(syscall.SIGKILL, -1)
		startDev(t, stack.Containerd2, "--clean").ends(0, 0)
		asBefore(t, before)
	}
	d := startDev(t, stack.Containerd2, "--once")
	d.printed("A node")
	d.ends(syscall.SIGINT, 1)
	d.printed(`playlet: interrupted before the sample pod had answered`)
	asBefore(t, before)
}

// The tour is typed as a person does, over pods of one's own that are run beside the sample: its last word is a pod that heals.
func TestTheTourOfDev(t *testing.T) {
	before := machine(t)
	file := filepath.Join(t.TempDir(), "mine.yaml")
	must(t, os.WriteFile(file, []byte(`{apiVersion: v1, kind: Pod, metadata: {name: mine}, spec: {containers: [{name: hello,
		image: "playlet.local/hello:1"}]}}`), 0o644))
	d := &devRun{t: t, cmd: devCommand(t, stack.Containerd2, "--tour", "--pods="+file)}
	d.cmd.Stdout, d.cmd.Stderr = &d.out, &d.out
	keys, err := d.cmd.StdinPipe()
	must(t, err)
	d.start(func() {})
	d.printed(`pods: pod/` + onNode("mine") + ` created`)
	for i, step := range []struct{ title, shows, next string }{
		{"start", `From start to ready: `, "Enter leads to the next step: watch"},
		{"watch", `default/` + onNode("hello"), "Enter leads to the next step: explain"},
		{"explain", `ConfigMap default/greeting does not exist; it is needed by container hello\n`, "Enter leads to the next step: break"},
		{"break", `pods/default/` + onNode("hello") + ` +running +0 +<none> +1 `, "Enter leads to the next step: heal"},
		{"heal", `default +` + onNode("broken") + ` +1/1 +Running`, "Enter ends the tour"},
	} {
		d.printed(fmt.Sprintf(`%d of 5: %s\n`, i+1, step.title))
		d.printed(step.shows)
		d.printed(step.next)
		_, err := io.WriteString(keys, "\n")
		must(t, err)
	}
	d.printed(`End it: +Ctrl-C`)
	d.ends(syscall.SIGINT, 0)
	asBefore(t, before)
}
