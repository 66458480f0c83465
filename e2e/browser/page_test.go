//go:build e2e

package browser

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
)

// limit bounds each wait; it is reached only when something is stuck.
const limit = 5 * time.Minute

// TestTheObservatoryInABrowser uses the page like a person, with a thousand pods over the simulated runtime: by keys and clicks,
// narrow and wide, in light and dark. It prints, without judging, the time of the first view and the frames per second while the
// list scrolls. Screenshots are kept in PLAYLET_SCREENSHOTS, else in the folder of artefacts (go test -artifacts).
func TestTheObservatoryInABrowser(t *testing.T) {
	if _, err := exec.LookPath(Program); err != nil {
		t.Fatalf("%v: `go run ./e2e/parts` installs Debian's package", err)
	}
	pods := 1000
	if text := os.Getenv("PLAYLET_PAGE_PODS"); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		pods = n
	}
	a := startAgent(t, pods)
	b, err := Start(t.TempDir(), wide, 800)
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	p := &page{t: t, Chromium: b, pictures: os.Getenv("PLAYLET_SCREENSHOTS")}
	if p.pictures == "" {
		p.pictures = t.ArtifactDir()
	}
	must(t, os.MkdirAll(p.pictures, 0o755))
	t.Logf("screenshots are in %s", p.pictures)

	// A wrong token, then the right one, which leaves the address.
	must(t, b.Open(a.origin+"/?token=wrong"))
	p.until("the refusal", `document.body?.innerText.includes('playlet observatory')`)
	p.Said() // the browser reports the 401
	began := time.Now()
	must(t, b.Open(a.address))
	p.until("all pods", fmt.Sprintf(`document.body?.dataset.shown === 'pods %d'`, pods+1))
	first := time.Since(began)
	p.until("an address without the token", `location.search === '' && document.cookie === ''`)
	var paint float64
	must(t, b.Eval(`performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0`, &paint))
	must(t, b.Eval(fetchAxe(t), nil))
	p.until("the pod in trouble on top", `document.querySelector('.space .row .c-name')?.textContent.includes('needs') &&
		document.querySelector('#in-trouble').textContent === '1 pod in trouble'`)
	p.until("the node's figures", `/CPU \S+ cores/.test(document.getElementById('strip').innerText)`)
	p.view("pods")
	must(t, b.Click("[data-sort=name]"))
	must(t, b.Click("[data-sort=name]"))
	p.until("the names from the last", `document.querySelector('.space .row[aria-posinset="1"] .c-name')?.textContent.includes('web-')`)
	must(t, b.Click("[data-sort=name]"))
	p.until("trouble on top again", `document.querySelector('.space .row[aria-posinset="1"] .c-name')?.textContent.includes('needs')`)
	must(t, b.Click("#in-trouble"))
	p.until("the pods in trouble alone", `document.body.dataset.shown === 'pods 1'`)
	must(t, b.Click("[data-chip=all]"))

	var seen struct{ Rows, Frames, Seconds float64 }
	must(t, b.Eval(`(async () => {
		const list = document.getElementById('scroll'), began = performance.now();
		let frames = 0;
		while (performance.now() - began < 3000) { list.scrollTop += 90; frames++; await new Promise(requestAnimationFrame); }
		const seconds = (performance.now() - began) / 1000;
		list.scrollTop = 0;
		return { Rows: list.querySelectorAll('.row').length, Frames: frames, Seconds: seconds };
	})()`, &seen))
	t.Logf("%d pods: first paint after %.0f ms, all pods in the list after %s, %.0f frames a second while it scrolls, %.0f rows in the document",
		pods, paint, first.Round(time.Millisecond), seen.Frames/seen.Seconds, seen.Rows)
	if seen.Rows > 100 {
		t.Errorf("%.0f rows are in the document", seen.Rows)
	}

	// The pod that waits, found by the filter, opened by keys: the sentence is the one that playlet pods prints.
	p.keys("/", "n", "e", "e", "d", "s", "Enter")
	p.until("one pod", `document.body.dataset.shown === 'pods 1'`)
	p.keys("Enter")
	const cause = "Secret default/db-password does not exist"
	p.until("its cause", fmt.Sprintf(`document.querySelector('#detail .cause')?.textContent.includes(%q)`, cause))
	if out := a.playlet("pods"); !strings.Contains(out, p.text("#detail .cause")) {
		t.Errorf("playlet pods does not say %q:\n%s", p.text("#detail .cause"), out)
	}
	p.view("why")
	p.keys("2")
	p.until("a sentence instead of its log", `document.querySelector('.logs .note')?.textContent.includes(' ')`)
	p.view("logs-never-ran")
	p.keys("Escape", "/", "Escape")
	p.until("all pods again", fmt.Sprintf(`document.body.dataset.shown === 'pods %d' && document.getElementById('detail').hidden`, pods+1))

	// A pod starts while the page is open: its messages, the causes of one of them, its critical path, its figures. The flight
	// recorder has dropped most messages of the first pods.
	a.write("late", "late:1")
	p.keys("/", "l", "a", "t", "e", "Enter")
	p.until("the new pod", `document.body.dataset.shown === 'pods 1'`)
	p.keys("j", "k", "Enter", "3")
	p.until("its start", `document.querySelectorAll('.entry.call').length > 3 && [...document.querySelectorAll('.entry')].some(e => e.textContent.includes('StartContainer'))`)
	must(t, b.Click(".diagram .entry:last-of-type"))
	p.keys("k")
	p.until("what led to it", `document.querySelectorAll('.entry.chain').length > 0 && document.querySelectorAll('.entry.chosen').length === 1`)
	var chosen string
	must(t, b.Eval(`document.querySelector('#scroll').getAttribute('aria-activedescendant')`, &chosen))
	p.keys("4")
	p.until("its critical path", `document.querySelectorAll('.stack i').length > 3`)
	p.keys("3")
	p.until("its messages again", `document.querySelectorAll('.entry.call').length > 3`)
	p.keys("j", "k")
	p.until("a chosen message", `document.querySelector('.diagram').contains(document.activeElement) && document.querySelector('.entry.chosen')`)
	p.until("the same pod", fmt.Sprintf(`document.querySelector('#scroll').getAttribute('aria-activedescendant') === %q`, chosen))
	p.until("lanes that fit the width", `document.querySelector('.diagram').scrollWidth <= document.querySelector('.diagram').clientWidth`)
	p.keys("Home")
	p.until("the effects of the first", `document.querySelectorAll('.entry.effect').length > 0 && !document.querySelector('.legend > button').hidden`)
	p.view("messages")
	must(t, b.Click(".legend > button"))
	p.until("the newest message", `document.querySelector('.legend > button').hidden`)
	must(t, b.Click(".key.call"))
	p.until("no calls", `document.querySelectorAll('.entry.call').length === 0 && document.querySelectorAll('.entry').length > 3`)
	must(t, b.Click(".key.call"))
	p.until("the calls again", `document.querySelectorAll('.entry.call').length > 3`)
	p.keys("4")
	p.until("its critical path", `document.querySelectorAll('.stack i').length > 3 && document.querySelectorAll('.path tbody tr').length > 2`)
	p.view("start")
	p.keys("5")
	p.until("its figures", `document.querySelectorAll('.chart').length > 0 || /no figures/.test(document.querySelector('#panel .note').textContent)`)
	p.view("figures")
	p.keys("2")
	must(t, os.WriteFile(a.logOf("late"), []byte("2026-01-01T00:00:00Z stdout F <b>one</b>\n2026-01-01T00:00:00Z stdout F two\n"), 0o600))
	must(t, b.Click(".logs select"))
	p.keys("Escape")
	must(t, b.Eval(`document.querySelector('.logs select').dispatchEvent(new Event('change'))`, nil))
	p.until("its log, as text", `document.querySelector('.log')?.innerText.includes('<b>one</b>') && !document.querySelector('.log b')`)
	must(t, b.Eval(`(() => { const e = document.querySelector('.logs [type=search]'); e.value = 'TWO'; e.dispatchEvent(new Event('input')); })()`, nil))
	p.until("the line that matches", `document.querySelectorAll('.log div:not([hidden])').length === 1`)
	p.view("logs")
	p.keys("Escape", "/", "Escape")

	// Actors: the tree is folded and unfolded, one is asked for its account, and killed.
	p.keys("g", "a")
	p.until("the actors", `document.body.dataset.shown?.startsWith('actors ') && document.querySelectorAll('[role=treeitem]').length > 10`)
	p.view("actors")
	must(t, b.Eval(`document.getElementById('scroll').focus()`, nil))
	p.keys("Home", "ArrowLeft")
	p.until("a folded tree", `document.body.dataset.shown === 'actors 1'`)
	p.keys("ArrowRight", "/", "v", "o", "l", "u", "m", "e", "s", "Enter", "j", "Enter")
	p.until("its account", `document.querySelector('#detail .account')?.textContent.length > 2 && document.querySelectorAll('#detail button.danger').length === 2`)
	must(t, b.Click("#detail button.danger"))
	p.until("its restart", `[...document.querySelectorAll('#detail dd')].some(e => e.textContent.startsWith('chaos: rule'))`)
	p.until("its recovery, with the messages sent since", `/ran again after/.test(document.querySelector('.recovery').innerText) &&
		document.querySelectorAll('.recovery li').length > 0`)
	p.until("its sparklines", `document.querySelectorAll('.rates .curve[d^=M]').length === 3`)
	p.view("actor")
	p.keys("g", "n")
	p.until("the node", `document.querySelectorAll('.chart .curve[d]').length > 2`)
	p.until("figures from before the view was opened", `(() => { const [, n, unit] = /(\d+)([sm])/.exec(document.querySelector('.axis').innerText) ?? [];
		return document.querySelector('.chart .curve').getAttribute('d').split('L').length > 2 && n > 0 && unit; })()`)
	must(t, b.Eval(`document.querySelector('.chart svg').dispatchEvent(new PointerEvent('pointermove', { clientX: 0 }))`, nil))
	p.until("the time under the pointer", `/\d:\d\d/.test(document.querySelector('.axis').lastChild.textContent)`)
	must(t, b.Eval(`document.querySelector('.chart svg').dispatchEvent(new PointerEvent('pointerleave'))`, nil))
	p.view("node")
	p.keys("g", "c")
	p.until("the rule", `document.querySelector('#detail tbody')?.textContent.includes('kill volumes')`)
	p.until("the rule in the strip", `document.getElementById('strip').innerText.includes('kill volumes')`)
	p.view("chaos")

	// The page's text for assistive technology, without errors.
	p.keys("g", "p")
	p.until("the list again", fmt.Sprintf(`document.body.dataset.shown === 'pods %d'`, pods+2))
	p.keys("j")
	p.until("a chosen row", `(() => { const list = document.getElementById('scroll'), row = document.getElementById(list.getAttribute('aria-activedescendant'));
		return list.getAttribute('role') === 'listbox' && row?.getAttribute('aria-selected') === 'true' && row.getAttribute('aria-setsize') > 1; })()`)
	for _, said := range p.Said() {
		// The actor was killed, one pod never ran, the runtime wrote no log for another, and the pod may not have been ready
		// when its path was requested.
		if !strings.Contains(said, "/v1/actors/volumes") && !strings.Contains(said, "/v1/criticalpath") &&
			!strings.Contains(said, "/v1/logs/default/needs-node") && !strings.Contains(said, "/v1/logs/default/late-node") {
			t.Errorf("the browser reports: %s", said)
		}
	}
}

// TestPageSaysThatTheAgentIsSilent stops the agent's process, as a hung node would, and continues it.
// The address of a pod or an actor that does not exist leads to a sentence, without Events of other pods and without buttons.
func TestPage_AbsentPodsAndActors(t *testing.T) {
	a := startAgent(t, 1)
	b, err := Start(t.TempDir(), wide, 800)
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	p := &page{t: t, Chromium: b, pictures: t.ArtifactDir()}
	must(t, b.Open(a.address))
	p.until("the pods", `document.body?.dataset.shown === 'pods 2'`)
	must(t, b.Eval(`location.hash = '#/pods/nope'`, nil))
	p.until("no pod and no Events", `/This pod is no longer on the node/.test(document.querySelector('#detail').innerText) &&
		document.querySelector('.events').innerText === 'No Event of this pod is recorded.'`)
	must(t, b.Eval(`location.hash = '#/actors/nope'`, nil))
	p.until("no actor and no buttons", `/there is no actor "nope"\. Close this/.test(document.querySelector('#detail').innerText) &&
		![...document.querySelectorAll('#detail button.danger')].some(e => e.checkVisibility())`)
}

func TestPageSaysThatTheAgentIsSilent(t *testing.T) {
	a := startAgent(t, 1)
	b, err := Start(t.TempDir(), wide, 800)
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	p := &page{t: t, Chromium: b, pictures: t.ArtifactDir()}
	if dir := os.Getenv("PLAYLET_SCREENSHOTS"); dir != "" {
		p.pictures = dir
	}
	must(t, os.MkdirAll(p.pictures, 0o755))
	must(t, b.Open(a.address))
	p.until("the pods", `document.body?.dataset.shown === 'pods 2'`)
	must(t, b.Eval(fetchAxe(t), nil))
	var key string
	must(t, b.Eval(`(async () => {
		const m = await import('/observatory/actors.js'), fetched = window.fetch;
		const tree = [['', 'running'], ['images', 'running'], ['images/x', 'quarantined']].map(([path, state]) => ({ path, state }));
		window.fetch = async () => new Response(JSON.stringify({ at: new Date(), actors: tree }));
		await new Promise(done => { const poll = m.watchActors(() => { poll.stop(); done(); }); });
		window.fetch = fetched;
		return m.actorColumns[0].key(m.actors.byPath.get('images'));
	})()`, &key))
	if !strings.HasSuffix(key, " true bad") {
		t.Errorf("the folded parent of a quarantined actor has the key %q, want the colour bad", key)
	}
	must(t, a.process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = a.process.Signal(syscall.SIGCONT) }) // it may have ended
	p.until("the notice", `document.getElementById('silent').innerText.includes('has not answered since')`)
	p.view("silent")
	must(t, a.process.Signal(syscall.SIGCONT))
	p.until("the agent's return", `document.getElementById('silent').hidden && !('stale' in document.body.dataset)`)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// page is a browser with the page open.
type page struct {
	*Chromium
	t        *testing.T
	pictures string
}

func (p *page) keys(names ...string) {
	p.t.Helper()
	for _, name := range names {
		must(p.t, p.Key(name))
	}
}

// until waits for an expression to be true.
func (p *page) until(what, expression string) {
	p.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		yes := false
		if p.Eval("Boolean("+expression+")", &yes) == nil && yes {
			return
		}
	}
	p.picture("stuck")
	p.t.Fatalf("%s: waited in vain for %s; shown is %q\n%s", what, expression, p.text("body"), strings.Join(p.Said(), "\n"))
}

func (p *page) text(selector string) (out string) {
	p.t.Helper()
	must(p.t, p.Eval(fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector), &out))
	return out
}

func (p *page) picture(name string) {
	p.t.Helper()
	must(p.t, p.Screenshot(filepath.Join(p.pictures, name+".png")))
}

// agent is the binary over a simulated runtime.
type agent struct {
	t                         *testing.T
	binary, socket, manifests string
	address, origin           string // of the page, with its token and without
	log                       bytes.Buffer
	process                   *os.Process
	logs                      string // folder of the pods' logs
}

// startAgent starts the agent with so many pods that run, and one that waits for a Secret, and returns once they do.
func startAgent(t *testing.T, pods int) *agent {
	t.Helper()
	dir, err := os.MkdirTemp("", "page") // a short path: unix sockets have short names
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := &agent{t: t, binary: os.Getenv("PLAYLET_BINARY"), socket: filepath.Join(dir, "a.sock"), manifests: filepath.Join(dir, "manifests")}
	if a.binary == "" {
		a.binary = filepath.Join(dir, "playlet")
		out, err := exec.Command("go", "build", "-o", a.binary, "github.com/playlet-dev/playlet/cmd/playlet").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	objects, conf := filepath.Join(dir, "objects"), filepath.Join(dir, "config.yaml")
	for _, d := range []string{a.manifests, objects} {
		must(t, os.Mkdir(d, 0o700))
	}
	runtime, err := sim.Start(sim.Options{Socket: filepath.Join(dir, "cri.sock"), CgroupDriver: 1})
	must(t, err)
	t.Cleanup(runtime.Close)
	must(t, os.WriteFile(conf, []byte(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupsPerQOS: false
makeIPTablesUtilChains: false
enforceNodeAllocatable: []
cgroupDriver: cgroupfs
enableServer: false
healthzPort: 0
maxPods: 2000
podLogsDir: `+filepath.Join(dir, "logs")+`
evictionHard: {memory.available: 1Mi}
`), 0o600))
	for i := range pods {
		a.write(fmt.Sprintf("web-%04d", i), "web:1")
	}
	must(t, os.WriteFile(filepath.Join(a.manifests, "needs.yaml"), []byte(`apiVersion: v1
kind: Pod
metadata: {name: needs}
spec:
  containers:
  - name: main
    image: web:1
    env: [{name: P, valueFrom: {secretKeyRef: {name: db-password, key: p}}}]
`), 0o600))
	cmd := exec.Command(a.binary, "--config="+conf, "--root-dir="+filepath.Join(dir, "root"), "--cert-dir="+filepath.Join(dir, "pki"),
		"--pod-manifest-path="+a.manifests, "--object-dir="+objects, "--container-runtime-endpoint="+runtime.Endpoint(),
		"--admin-socket="+a.socket, "--log-links-dir=", "--hostname-override=node", "--node-ip=192.0.2.7",
		"--observatory-address=127.0.0.1:0", "--enable-chaos")
	cmd.Stdout, cmd.Stderr = &a.log, &a.log
	must(t, cmd.Start())
	a.process, a.logs = cmd.Process, filepath.Join(dir, "logs")
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // its log has the reason
		if t.Failed() {
			t.Logf("the agent's log ends with:\n%s", a.log.String()[max(0, a.log.Len()-4000):])
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := runtime.WaitFor(ctx, func(s sim.Snapshot) bool {
		n := 0
		for _, c := range s.Containers {
			if strings.Contains(fmt.Sprint(c.State), "RUNNING") {
				n++
			}
		}
		return n >= pods
	}); err != nil {
		t.Fatalf("fewer than %d containers run: %v", pods, err)
	}
	a.address = strings.TrimSpace(a.playlet("observatory"))
	a.origin, _, _ = strings.Cut(a.address, "/?")
	return a
}

func (a *agent) write(name, image string) {
	a.t.Helper()
	must(a.t, os.WriteFile(filepath.Join(a.manifests, name+".yaml"), fmt.Appendf(nil,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: main, image: %q}\n",
		name, image), 0o600))
}

// logOf is the file of a pod's first log.
func (a *agent) logOf(name string) string {
	a.t.Helper()
	found, err := filepath.Glob(filepath.Join(a.logs, "default_"+name+"-node_*", "main"))
	if err != nil || len(found) != 1 {
		a.t.Fatalf("the log folder of %s: %v %v", name, found, err)
	}
	return filepath.Join(found[0], "0.log")
}

// playlet runs a command and gives all that it prints.
func (a *agent) playlet(args ...string) string {
	a.t.Helper()
	cmd := exec.Command(a.binary, append(args, "--admin-socket="+a.socket)...)
	out, err := cmd.CombinedOutput() // notes on pods that wait are on the standard error
	if err != nil {
		a.t.Fatalf("playlet %v: %v", args, err)
	}
	return string(out)
}
