package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/cri/sim"
)

// The causes of less common failures: of an image, a sandbox, a start, an end, a reference and a hook.
func TestTheCauseOfRarerTroubles(t *testing.T) {
	t.Parallel()
	said := func(text string) sim.Image { return sim.Image{Err: status.Error(codes.Unknown, text)} }
	r := newRig(t, sim.Options{
		Images: map[string]sim.Image{
			"dns:1":   said("dial tcp: lookup registry.example: no such host"),
			"tls:1":   said("x509: certificate signed by unknown authority"),
			"plain:1": said("http: server gave HTTP response to HTTPS client"),
			"busy:1":  said("unexpected status: 429 Too Many Requests"),
			"arch:1":  said("no match for platform in manifest"),
		},
		Script: sim.Script{
			ByContainer: map[string]sim.Sequence{
				"term-node/main":   {sim.ExitAfter(0, 143)},
				"shell-node/main":  {sim.Behaviour{Exits: true, Code: 127, Message: "sh: 1: nope: not found"}},
				"noexec-node/main": {sim.Behaviour{Exits: true, Code: 126}},
				"mode-node/main":   {sim.Behaviour{StartError: `runc create failed: exec: "/run.sh": permission denied`}},
				"folder-node/main": {sim.Behaviour{StartError: `runc create failed: exec: "/etc": is a directory`}},
				"rofs-node/main":   {sim.Behaviour{StartError: `runc create failed: error mounting "/x" to rootfs at "/data/sub": mkdirat sub: read-only file system`}},
				"writes-node/main": {sim.Behaviour{Exits: true, Code: 1, Message: "cp: can't create '/data/x': Read-only file system"}},
				"cwd-node/main":    {sim.Behaviour{StartError: `runc create failed: chdir to cwd ("/nope") set in config.json failed: no such file`}},
				"format-node/main": {sim.Behaviour{StartError: `runc create failed: exec /a.out: exec format error`}},
				"job-node/main":    {sim.ExitAfter(0, 0)},
				"late-node/main":   {sim.IgnoringTerm()},
			},
			Exec: func(ctx context.Context, _ sim.Target, command []string) sim.ExecResult {
				if command[0] == "hang" {
					<-ctx.Done()
				}
				return sim.ExecResult{Code: 1, Stderr: "not yet"}
			},
		},
	})
	for plug, says := range map[string]string{
		"handler": `no runtime for "fast" is configured`,
		"nonet":   "cni plugin not initialized",
		"pause":   `failed to get sandbox image "pause:3": failed to pull`,
	} {
		r.runtime.Inject(sim.Fault{Call: "RunPodSandbox", Kind: sim.Error, Times: -1, Err: status.Error(codes.Unknown, says),
			Match: func(target sim.Target, _ any) bool { return strings.HasPrefix(target.PodName, plug) }})
	}
	for name, text := range map[string]string{
		"settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: default}\ndata: {color: blue}\n",
	} {
		if err := os.WriteFile(filepath.Join(r.objects(), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const main = "    image: hello\n"
	more := func(name, container string) string {
		return strings.Replace(manifest(name, "Always", nil, []string{"main hello"}), main, main+container, 1)
	}
	pod := func(name, spec string) string {
		return manifest(name, "Always", nil, []string{"main hello"}) + "  " + spec + "\n"
	}
	image := func(name string) string { return manifest(name, "Always", nil, []string{"main " + name + ":1"}) }
	volume := func(name, source string) string {
		return more(name, "    volumeMounts: [{name: v, mountPath: /v}]\n") + "  volumes: [{name: v, " + source + "}]\n"
	}
	all := map[string]struct{ manifest, cause string }{
		"dns": {image("dns"), "container main: image dns:1 cannot be pulled: the name of its registry cannot be resolved"}, "tls": {image("tls"), "container main: image tls:1 cannot be pulled: the runtime does not trust its registry's certificate"}, "plain": {image("plain"), "container main: image plain:1 cannot be pulled: its registry uses plain HTTP, and the runtime expects HTTPS"}, "busy": {image("busy"), "container main: image busy:1 cannot be pulled: its registry limits the number of requests"}, "arch": {image("arch"), "container main: image arch:1 is not built for this node's architecture"},
		"term": {more("term", ""), "container main was killed by SIGTERM (exit code 143)"}, "shell": {more("shell", ""), "container main exited with code 127: a command was not found: sh: 1: nope: not found"}, "noexec": {more("noexec", ""), "container main exited with code 126: a command could not be executed"},
		"mode": {more("mode", ""), `container main: its command "/run.sh" may not be executed by its user`}, "folder": {more("folder", ""), `container main: its command "/etc" is a directory`}, "cwd": {more("cwd", ""), `container main: its working directory "/nope" cannot be entered`}, "format": {more("format", ""), "container main: its command is not a program for this node's architecture"},
		"rofs": {more("rofs", ""), `container main: the mount at "/data/sub" has no mount point, and none can be made`}, "writes": {more("writes", ""), "container main exited with code 1: cp: can't create '/data/x': Read-only file system"},
		"handler": {more("handler", ""), `the runtime has no handler "fast", which the pod's RuntimeClass names`}, "nonet": {more("nonet", ""), "the runtime has no network configuration"}, "pause": {more("pause", ""), "the sandbox image pause:3 cannot be pulled"},
		"key":       {volume("key", "configMap: {name: settings, items: [{key: size, path: size}]}"), `ConfigMap default/settings has no key "size"; it is needed by volume v`},
		"envkey":    {more("envkey", "    env: [{name: SIZE, valueFrom: {configMapKeyRef: {name: settings, key: size}}}]\n"), "ConfigMap default/settings has no key \"size\"; it is needed by container main"},
		"allenv":    {more("allenv", "    envFrom: [{secretRef: {name: tls}}]\n"), "Secret default/tls does not exist; it is needed by container main"},
		"subpath":   {strings.Replace(volume("subpath", "hostPath: {path: "+r.dir+"}"), "mountPath: /v}", "mountPath: /v, subPathExpr: $(NOPE)/x}", 1), `container main cannot be created: subPathExpr "$(NOPE)/x" of volume "v": the container's environment has no value for NOPE`},
		"nonroot":   {more("nonroot", "    securityContext: {runAsNonRoot: true, runAsUser: 0}\n"), "container main cannot be created: runAsNonRoot is set, but so is runAsUser: 0"},
		"imageroot": {more("imageroot", "    securityContext: {runAsNonRoot: true}\n"), "container main cannot be created: runAsNonRoot is set, but the image runs as root"},
		"hook":      {more("hook", "    lifecycle: {postStart: {exec: {command: [nope]}}}\n"), "container main: its post-start hook failed: "},
		"hanging":   {more("hanging", "    lifecycle: {postStart: {exec: {command: [hang]}}}\n"), "container main is running, and its post-start hook (hang) has not finished yet"},
		"sidecar":   {"apiVersion: v1\nkind: Pod\nmetadata: {name: sidecar}\nspec:\n  initContainers: [{name: side, image: hello, restartPolicy: Always, startupProbe: {periodSeconds: 1, failureThreshold: 999, exec: {command: [nope]}}}]\n  containers: [{name: main, image: hello}]\n", "init container side: its startup probe fails: not yet"},
		"deadline":  {pod("deadline", "activeDeadlineSeconds: 1"), "the pod was active for longer than its activeDeadlineSeconds (1)"},
		"sysctl":    {pod("sysctl", "securityContext: {sysctls: [{name: kernel.msgmax, value: \"1\"}]}"), `forbidden sysctl: "kernel.msgmax" is not safe, and allowedUnsafeSysctls does not name it`},
		"affinity":  {pod("affinity", "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}]}}}"), "this node's labels are not what the pod's node affinity requires"},
		"class":     {pod("class", "runtimeClassName: nope"), `the pod's sandbox cannot be created: RuntimeClass "nope" does not exist`},
	}
	for name, one := range all {
		r.write(name+".yaml", one.manifest)
	}
	manifests := map[string]string{ // which are refused
		"token": volume("token", "projected: {sources: [{serviceAccountToken: {path: t}}]}"),
		"claim": volume("claim", "persistentVolumeClaim: {claimName: data}"),
	}
	for name, text := range manifests {
		r.write(name+".yaml", text)
	}
	r.write("gate.yaml", pod("gate", "readinessGates: [{conditionType: example.com/ready}]"))
	r.write("job.yaml", manifest("job", "Never", nil, []string{"main hello"}))
	r.write("stuck.yaml", strings.Replace(more("stuck", "    lifecycle: {preStop: {exec: {command: [hang]}}}\n"), "Seconds: 3", "Seconds: 600", 1))
	r.start(nil)
	r.untilPrinted([]string{"pods", "stuck"}, "Running")
	r.remove("stuck.yaml")
	for name, one := range all {
		r.untilPrinted([]string{"pods"}, "default/"+name+"-node: "+one.cause)
		r.oneSentence(name, one.cause)
	}
	r.untilPrinted([]string{"pods"}, "default/stuck-node: the pod is ending because its manifest "+r.manifests+
		"/stuck.yaml was removed or no longer contains it: container main has up to "+
		"600s to run its pre-stop hook (hang) and to stop; stopping for ", "s; killed in ")
	for name, why := range map[string]string{
		"token": "a static pod cannot refer to service accounts: there is no API server to ask",
		"claim": "a static pod cannot refer to claims: there is no API server to ask",
	} {
		r.untilPrinted([]string{"explain", name}, "a manifest that may be the pod's cannot be used: ", name+".yaml:", why)
	}
	r.untilPrinted([]string{"explain", "gate"}, "a readiness gate is not: readiness gate \"example.com/ready\": the condition is not set")
	r.untilPrinted([]string{"explain", "job"}, "the pod has completed: all of its containers exited with code 0\n")
	r.runtime.Close()
	r.untilPrinted([]string{"pods", "job"}, "the container runtime at ", " is not ready")
	r.untilPrinted([]string{"explain", "node"}, "the container runtime")
}

// The causes of pods that wait for admission or for the API server.
func TestTheCauseOfRefusals(t *testing.T) {
	r := newClusterRig(t, sim.Options{}, "--max-pods=2", "--register-with-taints=dedicated=db:NoExecute")
	r.api.PrependReactor("delete", "pods", func(a ktesting.Action) (bool, runtime.Object, error) { // as finalizers have it
		deletion, ok := a.(ktesting.DeleteAction)
		return ok && deletion.GetName() == "first", &v1.Pod{}, nil
	})
	r.start(nil)
	tolerant := func(name, container string) string {
		return strings.Replace(manifest(name, "Always", nil, []string{"main forever"}), "forever\n", "forever\n"+container, 1) +
			"  tolerations: [{operator: Exists}]\n"
	}
	r.binds(manifest("tainted", "Always", nil, []string{"main forever"}))
	r.binds(tolerant("cpu", "    resources: {requests: {cpu: 4000}}\n"))
	r.untilPrinted([]string{"pods"}, "default/tainted: the pod does not tolerate the node's taint dedicated=db:NoExecute",
		"default/cpu: the node does not have enough CPU left for the pod (in millicores, ")
	r.binds(tolerant("first", ""))
	r.binds(tolerant("second", ""))
	r.await("both", func(s sim.Snapshot) bool { return isUp(s, "first") && isUp(s, "second") })
	r.binds(tolerant("third", ""))
	r.untilPrinted([]string{"pods"}, "default/third: the node already has its maximum number of pods (")
	r.edits("first", func(p *v1.Pod) { p.Finalizers = []string{"example.com/backup"} })
	r.deletes("first", 1)
	r.untilPrinted([]string{"explain", "first"}, "its object is kept by its finalizers: example.com/backup")
	r.oneSentence("third", "the node already has its maximum number of pods (")
	r.untilPrinted([]string{"events", "first"}, "Finalizers", "its object is kept by its finalizers: example.com/backup")
}
