//go:build e2e

package e2e

import (
	"os"
	"regexp"
	"runtime"
	"strings"
)

const goarch = runtime.GOARCH

// use is a command of README, as it stands there, with its test.
type use struct {
	line string
	runs []run
}

// run is a command typed in the folder of the clone, with its expected result.
type run struct {
	command string
	code    int
	want    string // a regular expression for its output
	input   string
	// until is the output of an endless one before it is interrupted.
	until string
	// keys are typed at a terminal, each when something is seen.
	keys []keys
	// before and then do and look at more.
	before func(n *readmesNode)
	then   func(n *readmesNode, out string)
}

type keys struct{ seen, typed string }

// manifestsOfReadme are the files that README's commands name, and some more. NGINX stands for the image.
var manifestsOfReadme = map[string]string{
	"web.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: site}
data: {index.html: welcome}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: nginx
    image: NGINX
    stdin: true
    command: [sh, -c, 'httpd -p 80 -h /site; echo serving; while read line; do echo "got $line"; done']
    volumeMounts: [{name: site, mountPath: /site}]
  volumes: [{name: site, configMap: {name: site}}]
`,
	"job.yaml": `apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "NGINX", command: [sh, -c, "echo done"]}]}}}
`,
	"failing.yaml": `apiVersion: batch/v1
kind: Job
metadata: {name: failing}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "NGINX", command: [sh, -c, "exit 3"]}]}}}
`,
	"greedy.yaml": `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: "NGINX", command: [tail, /dev/zero], resources: {limits: {memory: 16Mi}}}]
`,
	"folder/second.yaml": `apiVersion: v1
kind: Pod
metadata: {name: second, labels: {app: second}}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "NGINX", command: [sleep, "100000"]}]}
`,
}

// change makes web.yaml another.
func change(n *readmesNode) {
	text, err := os.ReadFile(n.path(clone, "web.yaml"))
	must(n.t, err)
	n.write(clone+"/web.yaml", strings.Replace(string(text), "app: web}", "app: web, tier: front}", 1))
}

// figures waits for figures of processor time, which take two measurements.
func figures(n *readmesNode) { n.until("playlet top pods", "web-node0 +[0-9]+m") }

// inSentences are the commands in README's sentences, beside those of its blocks.
var inSentences = []use{
	{"playlet --help", []run{{command: "playlet --help", want: `(?s)Pods:.*The agent:.*The node:`}}},
	{"playlet help flags", []run{{command: "playlet help flags", want: `--pod-manifest-path`}}},
	{"playlet completion", []run{{command: "playlet completion", want: `bash`}, {command: "playlet completion bash", want: `__playlet`}}},
	{"playlet install --replace-kubelet", []run{{command: "playlet install --replace-kubelet --dry-run", code: 1,
		want: `no kubelet is installed here as kubelet.service`}}},
	{"playlet uninstall", []run{{command: "playlet uninstall --dry-run", want: `\(dry run\) nothing was installed: there is no /etc/systemd/system/playlet.service`}}},
}

// uses are the commands of README's blocks, in an order in which each finds the results of the earlier ones.
var uses = []use{
	{"playlet run -f web.yaml --wait", []run{
		{command: "playlet run -f web.yaml --wait", want: `default/web`},
		{command: "playlet run -f folder --wait", want: `default/second`},
	}},
	{"playlet run -f web.yaml --diff", []run{
		{command: "playlet run -f web.yaml --diff"},
		{command: "playlet run -f web.yaml --diff", before: change, code: 1, want: `\+.*tier: front`},
		{command: "playlet run -f web.yaml --dry-run=server", want: `web`},
	}},
	{"playlet run -f job.yaml --wait --for=completed", []run{
		{command: "playlet run -f job.yaml --wait --for=completed", want: `default/job`},
		{command: "playlet run -f failing.yaml --wait --for=completed", code: 1, want: `exited with code 3`},
	}},
	{"playlet pods [-w] [NAME...] [-l app=web] [-o yaml]", []run{
		{command: "playlet pods", want: `(?m)^default +web-node0 +1/1 +Running`},
		{command: "playlet pods -w", until: `web-node0 +1/1 +Running`},
		{command: "playlet pods web", want: `web-node0 +1/1`},
		{command: "playlet pods -l app=web -o yaml", want: `(?m)^ +app: web$`},
		{command: "playlet pods web -o jsonpath={.status.phase}", want: `^Running`},
		{command: "playlet pods -l app=web -o name", want: `^pod/web-node0\n$`},
	}},
	{"playlet explain web", []run{
		{command: "playlet explain web", want: `(?i)ready|runs`},
		{command: "playlet explain node", want: `.`},
	}},
	{"playlet describe web", []run{{command: "playlet describe web", want: `(?s)nginx.*Conditions.*Events`}}},
	{"playlet events [-w] [NAME...]", []run{
		{command: "playlet events web", want: `Started`},
		{command: "playlet events -w", until: `Started`},
	}},
	{"playlet attach -i web", []run{{command: "playlet attach -i web", input: "good day\n", until: `got good day`}}},
	{"playlet exec -it web -- sh", []run{{command: "playlet exec -it web -- sh", code: 3, want: `one 2 three`, keys: []keys{
		{"#", "echo one $((1+1)) three\n"}, {"one 2 three", "exit 3\n"}}}}},
	{"playlet port-forward web 8080:80", []run{{command: "playlet port-forward web 8080:80", until: `(?i)forward`,
		then: func(n *readmesNode, _ string) { serves(n.t, "http://127.0.0.1:8080/", "welcome") }}}},
	{"playlet cp web:/etc/nginx ./nginx", []run{
		{command: "playlet cp web:/etc/nginx ./nginx", then: func(n *readmesNode, _ string) {
			n.runs("grep worker_processes "+clone+"/nginx/nginx.conf", 0)
		}},
		{command: "playlet cp ./nginx web:/tmp", then: func(n *readmesNode, _ string) {
			n.runs("playlet exec web -- cat /tmp/nginx/nginx.conf", 0)
		}},
	}},
	{"playlet restart web[/nginx] [--wait]", []run{
		{command: "playlet restart web --wait", want: `web`},
		{command: "playlet restart web/nginx --wait", want: `nginx`},
	}},
	{"playlet logs -f web", []run{
		{command: "playlet logs -f web", until: `serving`},
		{command: "playlet logs --previous web", want: `serving`},
		{command: "playlet logs web -c nginx --since=1h --tail=1", want: `serving`},
		{command: "playlet logs -l app=web --all-containers --prefix", want: `web.*nginx.*serving`},
	}},
	{"playlet images [pull | rm | prune] [IMAGE...]", []run{
		{command: "playlet images", want: `nginx:1`},
		{command: "playlet images pull HELLO", want: `hello`},
		{command: "playlet images prune --dry-run", want: `.`},
		{command: "playlet images prune", want: `.`},
		{command: "playlet images rm NGINX", code: 1, want: `web`},
	}},
	{"playlet actors [-w] [PATH]", []run{
		{command: "playlet actors", want: `(?s)node.*pods.*nginx`},
		{command: "playlet actors -w", until: `pods`},
		{command: "playlet actors pods/web", want: `nginx`},
	}},
	{"playlet actors inspect pods/web", []run{{command: "playlet actors inspect pods/web", want: `(?i)running`}}},
	{"playlet trace web [-f] [-o mermaid|perfetto]", []run{
		{command: "playlet trace web", want: `RunPodSandbox`},
		{command: "playlet trace web -f", until: `RunPodSandbox`},
		{command: "playlet trace web -o mermaid", want: `^sequenceDiagram`},
		{command: "playlet trace web -o perfetto", want: `traceEvents`},
	}},
	{"playlet trace web --critical-path", []run{{command: "playlet trace web --critical-path", want: `ms`}}},
	{"playlet chaos kill pods/web", []run{{command: "playlet chaos kill pods/web", want: `.`}}},
	{"playlet chaos run builtin:kills", []run{{command: "playlet chaos run builtin:kills", want: `passed: the node was steady again after`}}},
	{"playlet observatory", []run{{command: "playlet observatory", want: `http://127\.0\.0\.1:4195/`, then: func(n *readmesNode, out string) {
		serves(n.t, regexp.MustCompile(`http://\S+`).FindString(out), "<html")
	}}}},
	{"playlet doctor", []run{
		{command: "playlet doctor --config=" + machinesConfig, want: `(?m)^(ok|warn) +cgroups`},
	}},
	{"playlet top [pods | node]", []run{
		{command: "playlet top", keys: []keys{{"web-node0", "q"}}},
		{command: "playlet top pods", before: figures, want: `web-node0 +[0-9]+m`},
		{command: "playlet top node", want: `[0-9]+%`},
	}},
	{"sudo playlet install", []run{
		{command: "playlet install", code: 1, want: `not run by systemd; --no-start writes the files alone`},
		{command: "playlet install --dry-run", want: `(?s)playlet\.service.*ExecStart=`},
	}},
	{"playlet objects [rm configmap/settings]", []run{
		{command: "playlet objects", want: `ConfigMap +site +index\.html`},
		{command: "playlet run -f -", input: "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: red}}",
			want: `configmap/settings created`},
		{command: "playlet objects rm configmap/settings", want: `configmap/settings deleted`},
	}},
	{"playlet rm web [--force]", []run{
		{command: "playlet rm web --dry-run", want: `pod/web.* deleted \(server dry run\)`},
		{command: "playlet rm web --wait", want: `web`},
		{command: "playlet rm second --grace-period=0", want: `second`},
		{command: "playlet rm job failing --force", want: `job`},
	}},
}
