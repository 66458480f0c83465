package agent

import (
	"archive/tar"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playlet-dev/playlet/cri/sim"
)

// The command line as a user sees it, against a running agent. Each file of testdata/commands is the transcript of a session. go
// test -run TestTranscripts ./cmd/playlet/agent -update rewrites them; review the changes.
var update = flag.Bool("update", false, "rewrite the transcripts in testdata/commands")

// entry is a command of a session. It is repeated until it prints the transcript or, for a rewrite, until it prints until, so
// that nothing depends on the speed of the agent. A command that changes something, and need not wait, runs only once: a second
// run would hide its failure.
type entry struct {
	command, until string
	input          string // on stdin
	// then is called when the command, which goes on, has printed until; Ctrl-C ends it.
	then func(out string)
}

// interruptedTerminal types Ctrl-C once a command has printed something.
type interruptedTerminal struct {
	mu  sync.Mutex // a command's connections print, too
	out strings.Builder
	entry
}

func (w *interruptedTerminal) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.String()
}

// Write implements io.Writer.
func (w *interruptedTerminal) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.out.Write(p)
	if w.then != nil && strings.Contains(w.out.String(), w.until) {
		then, out := w.then, w.out.String()
		w.then = nil
		go func() { // the command goes on printing
			then(out)
			_ = syscall.Kill(os.Getpid(), syscall.SIGINT) // it listens, as it runs
		}()
	}
	return n, err
}

var changes = regexp.MustCompile(`^(port-forward|run|rm|restart|images (pull|rm|prune)|objects rm)\b`)

// varies lists the text that differs from run to run, with its replacement. The width of a column depends on its contents.
var varies = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{64}`), "HASH"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b`), "UID"},
	{regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(ns|µs|ms|s)\b`), "SPAN"},
	{regexp.MustCompile(` \(x\d+ over SPAN\)`), ""},
	{regexp.MustCompile(`10\.88\.\d+\.\d+`), "ADDRESS"},
	{regexp.MustCompile(`(127\.0\.0\.1:|connection for )\d{4,}`), "${1}PORT"},
	{regexp.MustCompile(`failed: .*(once|times)`), "failed: N times"},
	{regexp.MustCompile(`(CrashLoopBackOff +|Restarts: +)[1-9]\d*`), "${1}N"}, // it goes on
	{regexp.MustCompile(`(\S) {2,}(\S)`), "$1   $2"},
	// Lines of progress towards a pod depend on timing.
	{regexp.MustCompile(`(?m)^\S+/\S+: \w+, \d+ of \d+ ready.*\n`), ""},
}

func (r *rig) normal(text string) string {
	text = strings.ReplaceAll(text, r.dir, "DIR")
	for _, v := range varies {
		text = v.what.ReplaceAllString(text, v.as)
	}
	return text
}

// halfTime returns the time at which half of the test's remaining time is over, so that a transcript that is out of date is
// reported before the test is killed.
func (r *rig) halfTime() time.Time {
	now := time.Now()
	if t, ok := r.t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, limited := t.Deadline(); limited {
			return now.Add(min(end.Sub(now)/2, waitLimit))
		}
	}
	return now.Add(waitLimit)
}

// transcript runs a session and compares it with its file.
func (r *rig) transcript(name string, session ...entry) {
	r.t.Helper()
	file := filepath.Join("testdata", "commands", name+".txt")
	known, err := os.ReadFile(file)
	if err != nil && !*update {
		r.t.Fatal(err)
	}
	want := map[string]string{}
	for _, part := range strings.Split(string(known), "\n$ ") {
		command, _, _ := strings.Cut(strings.TrimPrefix(part, "$ "), "\n")
		want[command] = "$ " + strings.TrimPrefix(strings.TrimSuffix(part, "\n"), "$ ") + "\n"
	}
	var all []string
	for _, e := range session {
		got := ""
		for deadline := r.halfTime(); ; time.Sleep(20 * time.Millisecond) {
			out, notes := interruptedTerminal{entry: e}, strings.Builder{}
			code := runCommand(words(strings.ReplaceAll(e.command, "DIR", r.dir)), strings.NewReader(e.input), &out, &notes)
			got = "$ playlet " + e.command + "\n" + r.normal(out.String())
			if !strings.HasSuffix(got, "\n") {
				got += "\n"
			}
			if notes := r.normal(notes.String()); notes != "" {
				got += "2> " + strings.ReplaceAll(strings.TrimSuffix(notes, "\n"), "\n", "\n2> ") + "\n"
			}
			if code != 0 {
				got += fmt.Sprintf("exit code %d\n", code)
			}
			if *update && strings.Contains(got, e.until) || !*update && got == want["playlet "+e.command] {
				break
			}
			if once := e.until == "" && changes.MatchString(e.command); once || time.Now().After(deadline) {
				r.t.Errorf("%s:\n%s\nwant\n%s", file, got, want["playlet "+e.command])
				break
			}
		}
		all = append(all, got)
	}
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Join(all, "\n")), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
}

// words splits a command into its arguments; text in '…' is one argument.
func words(command string) []string {
	var out []string
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

// commands are those that there are in the containers; tar is in c alone.
func commands(t sim.Target, command []string, input io.Reader) (result sim.ExecResult) {
	switch line := strings.Join(command, " "); {
	case line == "": // it is attached to
		result.Stdout = "GET /\n"
	case line == "cat":
		text, err := io.ReadAll(input)
		result.Stdout, result.Err = string(text), err
	case line == "cat /etc/motd":
		result.Stdout = "hello\n"
	case line == "ls /none":
		result.Stderr, result.Code = "ls: /none: No such file or directory\n", 2
	case line == "test -d /srv":
	case line == "tar cf - -C /etc/ ./motd" && t.Container == "c":
		var archive strings.Builder
		w := tar.NewWriter(&archive)
		result.Err = w.WriteHeader(&tar.Header{Name: "./motd", Mode: 0o644, Typeflag: tar.TypeReg, Size: 6})
		_, err := io.WriteString(w, "hello\n")
		result.Err = errors.Join(result.Err, err, w.Close())
		result.Stdout = archive.String()
	case line == "tar cf - -C / ./none" && t.Container == "c":
		result.Stderr, result.Code = "tar: ./none: No such file or directory\n", 1
	case line == "tar xmf - -C /srv" && t.Container == "c":
		header, err := tar.NewReader(input).Next()
		if err != nil || header.Name != "motd" {
			result.Stderr, result.Code = fmt.Sprintf("tar: %v, %v\n", header, err), 1
		}
		_, _ = io.Copy(io.Discard, input)
	default:
		result.Err = fmt.Errorf("OCI runtime exec failed: exec failed: unable to start container process: exec: %q: "+
			"executable file not found in $PATH: unknown", command[0])
	}
	return result
}

// echoes writes to the forwarded port, and expects the same text back.
func (r *rig) echoes(out string) {
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(out)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		r.t.Error(err)
		return
	}
	back := make([]byte, 5)
	_, err = io.WriteString(conn, "hello")
	if err == nil {
		_, err = io.ReadFull(conn, back)
	}
	if err := errors.Join(err, conn.Close()); err != nil || string(back) != "hello" {
		r.t.Errorf("%q, %v", back, err)
	}
}

func TestTranscripts(t *testing.T) {
	r := newRig(t, sim.Options{
		WriteLogs: true,
		Images: map[string]sim.Image{
			"web:1":    {Size: 12_345_678, Content: "web"},
			"web:2":    {Size: 7_000_000},
			"pause:3":  {Size: 700_000, Pinned: true},
			"denied:1": {Err: status.Error(codes.Unknown, "unexpected status: 401 Unauthorized")},
		},
		Script: sim.Script{
			ByContainer: map[string]sim.Sequence{
				"web-node/c":   {sim.Behaviour{Output: []string{"listening on :80", "GET /"}}},
				"crash-node/c": {sim.Behaviour{Exits: true, Code: 3, Message: "no database", Output: []string{"no database"}}},
				"job-node/c":   {sim.ExitAfter(0, 0)},
			},
			Stream: commands,
		},
	}, "--image-gc-low-threshold=1", "--minimum-image-ttl-duration=0s")
	t.Setenv("PLAYLET_SOCKET", filepath.Join(r.dir, "admin.sock"))
	r.file("sample.yaml", strings.Replace(manifest("sample", "Always", nil, []string{"c web:1"}), "metadata:\n",
		"metadata:\n  labels: {app: sample}\n", 1)+"  dnsPolicy: Default\n")
	r.write("web.yaml", manifest("web", "Always", nil, []string{"c web:1", "d web:1"}))
	r.write("crash.yaml", manifest("crash", "Always", nil, []string{"c web:1"}))
	r.write("once.yaml", manifest("once", "OnFailure", nil, []string{"c web:1"}))
	r.write("job.yaml", manifest("job", "Never", nil, []string{"c web:1"}))
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "2/2", "Completed", "CrashLoopBackOff")
	r.await("the pod that is asked for later", func(s sim.Snapshot) bool {
		c := s.Container("once-node", "c")
		return c != nil && c.Running()
	})
	r.transcript("pods", []entry{
		{command: "pods web"},
		{command: "pods pod/web default/web-node -o wide --no-headers"},
		{command: "pods job -o name"},
		{command: "pods job -o jsonpath={.status.phase}"},
		{command: "pods web -o custom-columns=NAME:.metadata.name,IMAGES:.spec.containers[*].image"},
		{command: "pods nope"},
		{command: "pods -n kube-system"},
		{command: "pods -o tabel"},
		{command: "pods web -o go-template={{.metadata.namespace}}"},
		{command: "top pods web --containers", until: "Mi"},
		{command: "top pod web -n default --no-headers", until: "Mi"},
		{command: "explain web"},
		{command: "explain crash", until: "no database"},
		{command: "explain job"},
		{command: "pods --namespce=x"},
	}...)
	r.transcript("containers", []entry{
		{command: "logs web -c c"},
		{command: "logs web", until: "GET"},
		{command: "logs web --all-containers --prefix"},
		{command: "logs -p web -c c"},
		{command: "logs nope"},
		{command: "exec web echo hello"},
		{command: "exec web -lc c ls -l"},
		{command: "exec job -- echo hello"},
		{command: "exec web -- cat /etc/motd"},
		{command: "exec -i web -c d -- cat", input: "typed\n"},
		{command: "exec web -c c -- ls /none"},
		{command: "exec web -c c -- nope"},
		{command: "exec -it web -c c -- cat", input: "typed\n"},
		{command: "attach web"},
		{command: "attach -i web -c d"},
		{command: "attach job"},
		{command: "port-forward job 8080"},
		{command: "port-forward web :80 --address=127.0.0.1", until: "Forwarding", then: r.echoes},
		{command: "port-forward web :http"},
		{command: "cp web:/etc web:/tmp"},
		{command: "cp web:/etc/motd DIR/motd"},
		{command: "cp default/web:/none DIR/none -c c"},
		{command: "cp DIR/motd web:/srv -c c"},
		{command: "cp DIR/nope web:/srv -c c"},
		{command: "cp DIR/motd job:/srv"},
		{command: "cp web:/etc/motd DIR/motd -c d"},
		{command: "__complete exec web -c ''"},
		{command: "__complete pods -n ''"},
		{command: "__complete describe ''"},
		{command: "__complete cp we"},
		{command: "__complete cp DIR/"},
		{command: "__complete run -f ''"},
	}...)
	r.transcript("run", []entry{
		{command: "run -f DIR/sample.yaml --dry-run=server"},
		{command: "run -f DIR/sample.yaml"},
		{command: "run -f DIR/sample.yaml --wait", until: "unchanged"},
		{command: "run -f DIR/nope.yaml"},
		{command: "run"},
		{command: "run -f DIR/sample.yaml --wait --for=completed"},
		{command: "events sample", until: "Started"},
		{command: "describe sample"},
		{command: "pods -l app=sample --no-headers"},
		{command: "rm web"},
		{command: "rm nope"},
		{command: "rm"},
	}...)
	if text, err := os.ReadFile(filepath.Join(r.dir, "motd")); err != nil || string(text) != "hello\n" {
		t.Errorf("what was copied: %q, %v", text, err)
	}
	r.transcript("restart", []entry{
		{command: "restart web --wait"},
		{command: "pods web"},
		{command: "restart sample/c --wait"},
		{command: "restart default/sample -c nope"},
		{command: "restart job"},
		{command: "restart once"},
		{command: "restart nope"},
		{command: "restart"},
	}...)
	r.transcript("images", []entry{
		{command: "images pull web:2 denied:1", until: "401"},
		{command: "images pull pause:3", until: "pulled"},
		{command: "images"},
		{command: "images list -o name"},
		{command: "images -o custom-columns=TAG:.tags[0],SIZE:.size"},
		{command: "images rm web:1"},
		{command: "images rm pause:3"},
		{command: "images rm nope"},
		{command: "images prune --dry-run"},
		{command: "images rm docker.io/library/web:2"},
		{command: "images prune"},
		{command: "images rm"},
	}...)
	r.transcript("rm", []entry{
		{command: "rm -l app=nope"},
		{command: "rm sample --wait", until: "deleted"},
		{command: "rm sample"},
	}...)
}

// templated is a kind that has a template of pods.
func templated(kind, version, spec string) string {
	name := map[string]string{"Job": "job", "StatefulSet": "db"}[kind]
	more := map[string]string{
		"Job": "completions: 3, backoffLimit: 2", "StatefulSet": "replicas: 2, serviceName: db, selector: {matchLabels: {app: db}}",
	}[kind]
	return fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: data}, spec: {%s,
  template: {metadata: {labels: {app: %[3]s}}, spec: {dnsPolicy: Default, %[5]scontainers: [{name: c, image: "web:1"}]}}}}
`, version, kind, name, more, spec)
}

// Failures, slow operations, and pods that are changed or stopped early.
func TestTranscriptsOfTroubles(t *testing.T) {
	r := newRig(t, sim.Options{
		WriteLogs: true,
		Images: map[string]sim.Image{
			"web:1": {Size: 12_345_678}, "web:2": {Size: 7_000_000},
			"denied:1": {Err: status.Error(codes.Unknown, "unexpected status: 401 Unauthorized")},
		},
		Script: sim.Script{ByContainer: map[string]sim.Sequence{
			"never-node/c": {sim.Behaviour{Exits: true, Code: 9, Output: []string{"no such table"}}},
			"loop-node/c":  {sim.ExitAfter(0, 9)},
			"job-node/c":   {sim.ExitAfter(0, 0)},
			"full-node/c":  {sim.Behaviour{Exits: true, Code: 137, Reason: "OOMKilled"}},
			"slow-node/c":  {sim.IgnoringTerm()},
			"nope-node/c":  {sim.Behaviour{StartError: `runc create failed: exec: "nope": executable file not found in $PATH`}},
		}},
	})
	t.Setenv("PLAYLET_SOCKET", filepath.Join(r.dir, "admin.sock"))
	one := func(name, policy, image string) string {
		text := manifest(name, policy, nil, []string{"c " + image})
		return strings.Replace(text, "spec:\n", "spec:\n  dnsPolicy: Default\n", 1)
	}
	r.start(nil)
	if out, notes, code := r.playlet("images", "pull", "web:1"); code != 0 { // so that no pod does
		t.Fatal(out, notes)
	}
	r.write("denied.yaml", one("denied", "Always", "denied:1"))
	r.write("full.yaml", one("full", "Always", "web:1")+"    resources: {limits: {memory: 16Mi}}\n")
	r.write("probed.yaml", one("probed", "Always", "web:1")+`    livenessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: 3600}
    readinessProbe: {httpGet: {path: /ready, port: 1, host: 127.0.0.1}, periodSeconds: 1}
    ports: [{name: http, containerPort: 80}]
    env: [{name: COLOR, value: red}]
    volumeMounts: [{name: data, mountPath: /data, readOnly: true}]
  volumes: [{name: data, emptyDir: {}}]
`)
	r.write("typo.yaml", strings.Replace(one("typo", "Always", "web:1"), "image:", "imag:", 1))
	r.file("shop.yaml", deployed+"---\n"+fmt.Sprintf(settings, "red"))
	r.file("typo.yaml", strings.Replace(one("typo", "Always", "web:1"), "image:", "imag:", 1)+"    env: [{name: A, valeu: b}]\n")
	r.file("kind.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {}\n---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\n")
	r.file("never.yaml", one("never", "Never", "web:1"))
	r.file("nope.yaml", one("nope", "Never", "web:1")+"    command: [nope]\n")
	r.file("loop.yaml", one("loop", "Always", "web:1"))
	r.file("job.yaml", one("job", "Never", "web:1"))
	r.file("old.yaml", one("shop", "Always", "web:1"))
	r.file("new.yaml", one("shop", "Always", "web:2"))
	r.file("slow.yaml", strings.Replace(one("slow", "Always", "web:1"), "PeriodSeconds: 3", "PeriodSeconds: 6000", 1)+
		"    lifecycle: {preStop: {sleep: {seconds: 5000}}}\n")
	r.untilPrinted([]string{"pods"}, "ImagePullBackOff", "CrashLoopBackOff", "probed-node   0/1     Running", "manifest problem")
	r.transcript("troubles", []entry{
		{command: "pods", until: "typo.yaml"},
		{command: "logs denied"},
		{command: "logs denied probed -c nope"},
		{command: "exec denied -- ls"},
		{command: "exec probed ls -l"},
		{command: "explain denied", until: "401"},
		{command: "explain probed", until: "readiness"},
		{command: "explain full", until: "killed"},
		{command: "describe pod probed", until: "Unhealthy"},
		{command: "describe full", until: "BackOff"},
		{command: "restart denied"},
		{command: "events denied -o custom-columns=TYPE:.type,REASON:.reason", until: "Failed"},
		{command: "run -f DIR/typo.yaml"},
		{command: "run -f DIR/kind.yaml"},
		{command: "run -f DIR/kind.yaml --skip-unsupported"},
	}...)
	r.transcript("changes", []entry{
		{command: "pods -A -o jsonpath={.items[*].metadata.name}", until: "full-node"},
		{command: "run -f DIR/shop.yaml --wait"},
		{command: "run -f DIR/never.yaml --wait"},
		{command: "run -f DIR/loop.yaml --wait"},
		{command: "run -f DIR/job.yaml --wait --for=completed"},
		{command: "logs never"},
		{command: "run -f DIR/nope.yaml --wait"},
		{command: "logs nope"},
		{command: "rm nope --wait"},
		{command: "rm web job never loop --wait"},
		{command: "run -f - --wait --for=completed", input: templated("Job", "batch/v1", "restartPolicy: Never, ")},
		{command: "run -f - -n data"},
		{command: "run -f - --wait", input: templated("StatefulSet", "apps/v1", "")},
		{command: "run -f -", input: " "},
		{command: "pods -n data -o name"},
		{command: "rm job db --wait"},
		{command: "run -f DIR/old.yaml --wait"},
		{command: "run -f DIR/new.yaml --diff"},
		{command: "run -f DIR/new.yaml --dry-run=server"},
		{command: "run -f DIR/new.yaml --wait"},
		{command: "rm -f DIR/new.yaml --wait"},
		{command: "run -f DIR/slow.yaml --wait"},
		{command: "rm slow"},
		{command: "pods slow", until: "Terminating"},
		{command: "explain slow", until: "pre-stop"},
		{command: "rm default/slow"},
		{command: "rm slow-node --grace-period=6000"},
		{command: "rm pod slow --force --wait"},
	}...)
}
