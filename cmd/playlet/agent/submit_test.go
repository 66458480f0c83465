package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// file writes a manifest outside the folder that the agent reads.
func (r *rig) file(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// asks repeats a request until the agent answers, as a client must: the actor that handles it may be killed.
func (r *rig) asks(what string, ask func(context.Context, *api.Client) error) {
	r.t.Helper()
	client := api.NewClient(filepath.Join(r.dir, "admin.sock"))
	var err error
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Second) // a lost request has no answer
		err = ask(ctx, client)
		cancel()
		if err == nil {
			return
		}
	}
	r.t.Fatalf("%s: %v", what, err)
}

// submits submits a pod.
func (r *rig) submits(manifest string) {
	r.t.Helper()
	r.asks("submitting", func(ctx context.Context, c *api.Client) error {
		_, err := c.Submit(ctx, []byte(manifest), true)
		return err
	})
	r.asks("listing", func(ctx context.Context, c *api.Client) error {
		all, err := c.Submissions(ctx)
		if err == nil && len(all.Submissions) == 0 {
			err = errors.New("what was acknowledged is not there")
		}
		return err
	})
}

// restarts has a container restarted. It is asked for until that has happened, since the request is kept nowhere.
func (r *rig) restarts(pod, container string) {
	r.t.Helper()
	was := r.runtime.Snapshot().Container(pod, container)
	r.asks("restarting", func(ctx context.Context, c *api.Client) error {
		if now := r.runtime.Snapshot().Container(pod, container); now != nil && now.ID != was.ID && now.Running() {
			return nil
		}
		_, err := c.Restart(ctx, was.PodUID, map[string]string{container: was.ID})
		return cmp.Or(err, errors.New("it has not been restarted yet"))
	})
}

// fetches has an image pulled that no pod has, and removed.
func (r *rig) fetches(image string) {
	r.t.Helper()
	id, tries := "", 0
	r.asks("pulling", func(ctx context.Context, c *api.Client) error {
		got, err := c.PullImage(ctx, fmt.Sprint("try ", tries), image)
		if err == nil && got.ID == "" {
			err = fmt.Errorf("it is not pulled: %+v", *got)
		}
		if err != nil && got != nil && got.Failed != "" {
			tries++ // as a user's next command: this one has its answer
		}
		if err == nil {
			id = got.ID
		}
		return err
	})
	has := func() (there bool) {
		r.asks("listing images", func(ctx context.Context, c *api.Client) error {
			all, err := c.Images(ctx)
			there = err == nil && slices.ContainsFunc(all.Images, func(i messages.NodeImage) bool { return i.ID == id })
			return err
		})
		return there
	}
	if !has() {
		r.t.Errorf("the image that was pulled, %s, is not listed", id)
	}
	r.asks("removing an image", func(ctx context.Context, c *api.Client) error {
		got, err := c.RemoveImage(ctx, id, false)
		if err == nil && (got.Busy || got.Kept != "") {
			err = fmt.Errorf("it stays: %+v", *got)
		}
		return err
	})
	if has() {
		r.t.Errorf("the image %s that was removed is listed", id)
	}
}

// withdraws removes a submitted pod.
func (r *rig) withdraws(name string) {
	r.t.Helper()
	r.asks("withdrawing", func(ctx context.Context, c *api.Client) error {
		_, err := c.Withdraw(ctx, "default", name, -1, false)
		var refused *api.Error
		if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
			return nil // the answer to the time before was lost
		}
		return err
	})
}

// does runs a command that must succeed with this output.
func (r *rig) does(want string, args ...string) {
	r.t.Helper()
	if out, notes, code := r.playlet(args...); code != 0 || out != want {
		r.t.Errorf("playlet %s: %d\n%s%s\nwant\n%s", strings.Join(args, " "), code, out, notes, want)
	}
}

// refuses runs a command that must fail with all of these words, and print nothing but them.
func (r *rig) refuses(args []string, words ...string) {
	r.t.Helper()
	out, notes, code := r.playlet(args...)
	for _, w := range words {
		if code != 1 || out != "" || !strings.Contains(notes, w) {
			r.t.Errorf("playlet %s: %d\n%s%s\nwant %q in it", strings.Join(args, " "), code, out, notes, w)
		}
	}
}

// TestPodsAreRunAndRemoved is the life of submitted pods by the commands, over a restart of the agent.
func TestPodsAreRunAndRemoved(t *testing.T) {
	r := newRig(t, sim.Options{})
	web := r.file("web.yaml", manifest("web", "Always", nil, []string{"main one"}))
	two := r.file("two.yaml", manifest("a", "Always", nil, []string{"main one"})+"---\n"+manifest("b", "Always", nil,
		[]string{"main one"}))
	r.refuses([]string{"run", "-f", web}, "playlet is not running (no socket at ")
	r.start(nil)
	r.does("pod/web-node created\n", "run", "-f", web, "--wait")
	r.does("pod/web-node unchanged\n", "run", "-f", web)
	r.does("pod/a-node created\npod/b-node created\npod/web-node unchanged\n", "run", "-f", two, "-f", web, "--wait")
	r.untilPrinted([]string{"pods", "-o", "wide"}, "sources/submit")
	started := len(r.runtime.Calls("StartContainer"))
	r.stop()
	r.start(nil)
	r.does("pod/web-node unchanged\n", "run", "-f", web, "--wait")
	if n := len(r.runtime.Calls("StartContainer")); n != started {
		t.Errorf("%d containers were started by a restart of the agent", n-started)
	}
	before := r.runtime.Snapshot().Container("web-node", "main").PodUID
	r.file("web.yaml", manifest("web", "Always", nil, []string{"main two"}))
	r.does("pod/web-node configured\n", "run", "-f", web, "--wait")
	if c := r.runtime.Snapshot().Container("web-node", "main"); c == nil || c.PodUID == before {
		t.Errorf("there runs %+v", c)
	}
	r.does("pod/web-node deleted\n", "rm", "web", "--wait")
	r.does("pod/a-node deleted\npod/b-node deleted\n", "rm", "-f", two, "--wait")
	r.await("the end of all", func(s sim.Snapshot) bool { return len(s.Sandboxes) == 0 })
	r.refuses([]string{"rm", "web"}, `there is no pod "web" in any namespace`)
}

// TestRefusalsNameTheThing checks the error messages of the commands.
func TestRefusalsNameTheThing(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.write("taken.yaml", manifest("taken", "Always", nil, []string{"main one"}))
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "taken-node")
	bad := r.file("bad.yaml", manifest("good", "Always", nil, []string{"main one"})+
		"---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: bad\nspec:\n  nope: 1\n")
	r.refuses([]string{"run", "-f", bad}, bad+":17: spec.nope: ", bad+" was refused, and none of it is run")
	r.refuses([]string{"run", "-f", r.file("no.yaml", "hello")}, "no.yaml:1: ", "was refused")
	r.refuses([]string{"run", "-f", r.file("empty.yaml", "# nothing\n")}, "the manifest is empty")
	r.refuses([]string{"run", "-f", filepath.Join(r.dir, "missing")}, "no such file")
	r.refuses([]string{"run"}, "which manifest?")
	r.refuses([]string{"run", "x.yaml"}, "a manifest is named with -f x.yaml")
	r.refuses([]string{"run", "-f", r.file("taken.yaml", manifest("taken", "Always", nil, []string{"main two"}))},
		"metadata.name: a pod default/taken-node comes from the manifest "+filepath.Join(r.manifests, "taken.yaml")+" already: remove that file")
	r.refuses([]string{"rm", "taken"}, "was not submitted: it comes from the manifest "+filepath.Join(r.manifests, "taken.yaml")+"; to end it, remove that file")
	r.refuses([]string{"rm"}, "which pod?")
	r.refuses([]string{"rm", "-f", r.file("no.yaml", "hello")}, "does not tell which pods it means")
	r.await("the pod that runs to run", func(s sim.Snapshot) bool { return s.Container("taken-node", "main") != nil })
	if n := len(r.runtime.Snapshot().Sandboxes); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
}

// TestStandardInputAndJSON covers the interface for programs.
func TestStandardInputAndJSON(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.start(nil)
	web := r.file("web.yaml", manifest("web", "Always", nil, []string{"main one"}))
	out, notes, code := r.playlet("run", "-f", web, "-o", "json")
	var got api.SubmitReply
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || len(got.Pods) != 1 ||
		got.Pods[0].Change != "created" {
		t.Errorf("%d %v\n%s%s", code, err, out, notes)
	}
}

// The wait for the end of a pod is not ended by a restart of the actor that reports it.
func TestRmWaitsThroughRestartsOfPods(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.start(nil)
	r.does("pod/web-node created\n", "run", "-f", r.file("web.yaml", manifest("web", "Always", nil, []string{"main one"})),
		"--wait")
	release := r.runtime.Inject(sim.Fault{Call: "StopContainer", Kind: sim.Hang, Times: -1})
	defer release()
	ended := make(chan string, 1)
	go func() {
		out, notes, code := r.playlet("rm", "web", "--wait")
		ended <- fmt.Sprintf("%d %s%s", code, out, notes)
	}()
	until := func(ok func(*pods.Snapshot) bool) *pods.Snapshot {
		for now := r.agent.observatory.board.Now(); ; {
			if ok(now) {
				return now
			}
			var err error
			if now, err = r.agent.observatory.board.After(t.Context(), now.Version); err != nil {
				t.Fatal(err)
			}
		}
	}
	ending := func(s *pods.Snapshot) bool { return len(s.Pods) == 1 && s.Pods[0].Ending != "" }
	was := until(ending)
	for range 3 {
		r.agent.system.Kill(messages.Pods, "a test")
		was = until(func(s *pods.Snapshot) bool { return ending(s) && s.Complete() && !s.Life.Equal(was.Life) })
	}
	select {
	case got := <-ended:
		t.Fatalf("it says, while the pod runs: %s", got)
	default:
	}
	if !isUp(r.runtime.Snapshot(), "web-node") {
		t.Fatal("the pod does not run, so that nothing is shown here")
	}
	release()
	if got := <-ended; !strings.HasPrefix(got, "0 pod/web-node deleted\n") || isUp(r.runtime.Snapshot(), "web-node") {
		t.Error(got)
	}
}

// A pod that is named twice is restarted once, and two containers of a pod are both restarted.
func TestRestart_PodNamedTwiceRestartsOnce(t *testing.T) {
	r := newRig(t, sim.Options{Preload: []string{"image"}})
	r.write("web", manifest("web", "Always", nil, []string{"a image", "b image"}))
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "2/2")
	for i, args := range [][]string{{"web", "web-node"}, {"web/a", "web/b", "web"}} {
		out, notes, code := r.playlet(append([]string{"restart", "--wait"}, args...)...)
		if code != 0 || strings.Count(out, "container a restarting\n") != 1 || strings.Count(out, "container b restarting\n") != 1 {
			t.Errorf("playlet restart %q: code %d\n%s%s", args, code, out, notes)
		}
		list, _, _ := r.playlet("pods", "-o", "jsonpath={.items[0].status.containerStatuses[*].restartCount}")
		if want := fmt.Sprintf("%[1]d %[1]d", i+1); strings.TrimSpace(list) != want {
			t.Errorf("after playlet restart %q the restarts are %s, want %s", args, list, want)
		}
	}
}

// If the journal is removed while no agent runs, submitted pods keep running and are reported; playlet rm ends them.
func TestRemovedJournal(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.start(nil)
	r.submits(manifest("web", "Always", nil, []string{"main forever"}))
	r.submits(manifest("db", "Always", nil, []string{"main forever"}))
	runs := func(pod string) func(sim.Snapshot) bool {
		return func(s sim.Snapshot) bool {
			c := s.Container(pod, "main")
			return c != nil && c.Running()
		}
	}
	r.await("web", runs("web-node"))
	r.await("db", runs("db-node"))
	id := r.runtime.Snapshot().Container("db-node", "main").ID
	r.stop()
	dir := filepath.Join(r.dir, "root/playlet/submissions")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "default/web-node", "end it with playlet rm")
	if out, notes, code := r.playlet("rm", "web"); code != 0 {
		t.Fatalf("rm: %d: %s%s", code, out, notes)
	}
	r.await("the end of web", func(s sim.Snapshot) bool { return !runs("web-node")(s) })
	r.submits(manifest("db", "Always", nil, []string{"main forever"}))
	r.untilPrinted([]string{"pods"}, "db-node", "Running")
	r.stop()
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "db-node", "Running")
	if c := r.runtime.Snapshot().Container("db-node", "main"); c == nil || c.ID != id || !c.Running() {
		t.Errorf("container %s of db was replaced by %+v", id, c)
	}
}
