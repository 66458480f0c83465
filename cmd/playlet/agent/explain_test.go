package agent

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cri/sim"
)

// "playlet pods" and "playlet explain" name the cause of each trouble, in the same sentence.
func TestTheCauseOfEachTrouble(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{
		Images: map[string]sim.Image{
			"missing:1": {Err: status.Error(codes.NotFound, "failed to resolve reference: not found")},
			"down:1":    {Err: status.Error(codes.Unknown, "dial tcp 127.0.0.1:5000: connect: connection refused")},
			"denied:1":  {Err: status.Error(codes.Unknown, "unexpected status: 401 Unauthorized")},
			"full:1":    {Err: status.Error(codes.Unknown, "failed to extract layer: no space left on device")},
		},
		Script: sim.Script{
			ByContainer: map[string]sim.Sequence{
				"crash-node/main":   {sim.Behaviour{Exits: true, Code: 3, Message: "no database"}},
				"oom-node/main":     {sim.Behaviour{Exits: true, Code: 137, Reason: "OOMKilled"}},
				"done-node/main":    {sim.ExitAfter(0, 0)},
				"once-node/main":    {sim.ExitAfter(0, 4)},
				"init-node/setup":   {sim.ExitAfter(0, 1)},
				"command-node/main": {sim.Behaviour{StartError: `runc create failed: exec: "nope": executable file not found in $PATH`}},
				"ends-node/main":    {sim.IgnoringTerm()},
			},
			Exec: func(_ context.Context, _ sim.Target, command []string) sim.ExecResult {
				if command[0] == "ok" {
					return sim.ExecResult{}
				}
				return sim.ExecResult{Code: 1, Stderr: "not yet"}
			},
		},
	})
	for plug, says := range map[string]string{
		"plugin":  `failed to find plugin "bridge" in path [/opt/cni/bin]`,
		"address": "no IP addresses available in range set",
		"sandbox": "the moon is full",
	} {
		r.runtime.Inject(sim.Fault{Call: "RunPodSandbox", Kind: sim.Error, Times: -1, Err: status.Error(codes.Unknown, says),
			Match: func(target sim.Target, _ any) bool { return strings.HasPrefix(target.PodName, plug) }})
	}
	const main = "    image: hello\n"
	more := func(name, container string) string {
		return strings.Replace(manifest(name, "Always", nil, []string{"main hello"}), main, main+container, 1)
	}
	volume := func(name, source string) string {
		return more(name, "    volumeMounts: [{name: v, mountPath: /v}]\n") + "  volumes: [{name: v, " + source + "}]\n"
	}
	all := map[string]struct{ manifest, cause string }{
		"missing": {manifest("missing", "Always", nil, []string{"main missing:1"}), "container main: image missing:1 not found in its registry"},
		"down":    {manifest("down", "Always", nil, []string{"main down:1"}), "container main: image down:1 cannot be pulled: its registry does not answer"},
		"denied": {manifest("denied", "Always", nil, []string{"main denied:1"}),
			"container main: image denied:1 cannot be pulled: its registry denied access"},
		"full": {manifest("full", "Always", nil, []string{"main full:1"}),
			"container main: image full:1 cannot be pulled: no space is left on the node's disk"},
		"bad": {manifest("bad", "Always", nil, []string{"main Not/A:Name"}), "container main: image Not/A:Name is not a valid name"},
		"never": {strings.ReplaceAll(more("never", "    imagePullPolicy: Never\n"), "image: hello", "image: nowhere"),
			"container main: image nowhere is not on this node, and imagePullPolicy is Never"},
		"crash": {manifest("crash", "Always", nil, []string{"main hello"}), "container main exited with code 3: no database"},
		"oom":   {more("oom", "    resources: {limits: {memory: 16Mi}}\n"), "container main was killed for using more than 16Mi of memory"},
		"done": {manifest("done", "Always", nil, []string{"main hello"}),
			"container main exited with code 0, and its restartPolicy starts it again"},
		"once":    {manifest("once", "Never", nil, []string{"main hello"}), "container main exited with code 4"},
		"init":    {manifest("init", "Always", []string{"setup hello"}, []string{"main hello"}), "init container setup exited with code 1"},
		"initing": {manifest("initing", "Always", []string{"setup hello"}, []string{"main hello"}), "init container setup is still running, and the others wait for it to finish"},
		"command": {manifest("command", "Always", nil, []string{"main hello"}), `container main: its command "nope" is not in the image`},
		"config":  {volume("config", "configMap: {name: settings}"), "ConfigMap default/settings does not exist; it is needed by volume v"},
		"secret":  {volume("secret", "secret: {secretName: tls}"), "Secret default/tls does not exist; it is needed by volume v"},
		"host": {volume("host", "hostPath: {path: /no/such/place, type: Directory}"),
			"volume v cannot be mounted: hostPath /no/such/place is not what its type Directory asks for: nothing is there"},
		"env": {more("env", "    env: [{name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}]\n"),
			"ConfigMap default/settings does not exist; it is needed by container main"},
		"startup": {more("startup", "    startupProbe: {periodSeconds: 1, failureThreshold: 999, exec: {command: [nope]}}\n"),
			"container main: its startup probe fails: not yet"},
		"ready": {more("ready", "    readinessProbe: {periodSeconds: 1, exec: {command: [nope]}}\n"),
			"container main: its readiness probe fails: not yet"},
		"live": {more("live", "    livenessProbe: {periodSeconds: 1, failureThreshold: 1, exec: {command: [nope]}}\n"),
			"container main was killed because its liveness probe failed: not yet"},
		"selector": {manifest("selector", "Always", nil, []string{"main hello"}) + "  nodeSelector: {disk: ssd}\n",
			"the pod's nodeSelector wants the label disk=ssd, which this node has not"},
		"plugin":  {manifest("plugin", "Always", nil, []string{"main hello"}), "the CNI plugin bridge is not installed in /opt/cni/bin"},
		"address": {manifest("address", "Always", nil, []string{"main hello"}), "the pods' network has no address left for the pod"},
		"sandbox": {manifest("sandbox", "Always", nil, []string{"main hello"}), "the pod's sandbox cannot be created: RunPodSandbox default/sandbox-node: the moon is full"},
		"port":    {more("port", "    ports: [{containerPort: 80, hostPort: 8080}]\n"), ""},
		"port2":   {more("port2", "    ports: [{containerPort: 80, hostPort: 8080}]\n"), "host port 8080"},
	}
	for name, one := range all {
		r.write(name+".yaml", one.manifest)
	}
	r.write("ends.yaml", strings.Replace(manifest("ends", "Always", nil, []string{"main hello"}), "Seconds: 3", "Seconds: 600", 1))
	r.write("wrong.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: wrong}\nspec: {containers: [{name: c, image: x, terminationMessagePolicy: Nope}]}\n")
	r.start(nil)
	r.untilPrinted([]string{"pods"}, "ends-node       1/1     Running")
	r.remove("ends.yaml")
	all["ends"] = struct{ manifest, cause string }{"", "the pod is ending because its manifest " + r.manifests +
		"/ends.yaml was removed or no longer contains it: container main has up to 600s to stop"}
	for name, one := range all {
		if one.cause != "" && !strings.HasPrefix(name, "port") {
			r.untilPrinted([]string{"pods"}, "default/"+name+"-node: "+one.cause)
			r.oneSentence(name, one.cause)
		}
	}
	r.untilPrinted([]string{"pods"}, "host port 8080")
	r.untilPrinted([]string{"events"}, "FailedValidation", "a manifest cannot be used; "+filepath.Join(r.dir, "manifests", "wrong.yaml")+":", "spec.containers[0].terminationMessagePolicy")
	r.untilPrinted([]string{"explain", "pod/oom", "-v"}, all["oom"].cause+"\n  state:", "CrashLoopBackOff", "\n  waits for:  the end of its back-off\n",
		"\n  to fix it:", "\nEvidence:\n  pod default/oom-node, UID ", "exit code 137", " → pod/main  Started  RunContainer ")
	r.untilPrinted([]string{"explain", "pod/wrong"}, "a manifest that may be the pod's cannot be used: ", "spec.containers[0].terminationMessagePolicy")
	r.untilPrinted([]string{"explain", "node"}, "wrong.yaml")
	r.everyCheckHasARemedy()
	r.eventually("the explanation of a failed pull, in JSON", func() bool { // while it is tried again, it waits for the pull
		out, _, code := r.playlet("explain", "missing", "-o", "json")
		var got api.Explanations
		err := json.Unmarshal([]byte(out), &got)
		return err == nil && code == 0 && len(got.Items) == 1 && got.Items[0].Cause == all["missing"].cause &&
			got.Items[0].Tries > 0 && !got.Items[0].NextTry.IsZero() && !got.Items[0].Since.IsZero()
	})
	for arg, want := range map[string]string{"job/x": `there is no pod "x" in namespace "job"`, "a/b/c": `"a/b/c" names no pod`} {
		if _, notes, code := r.playlet("explain", arg); code != 1 || !strings.Contains(notes, want) {
			t.Errorf("%s: %d %q", arg, code, notes)
		}
	}
}

// everyCheckHasARemedy fails for a check of the node without a remedy: TestNode_EachCheckHasARemedy of explain has the others.
func (r *rig) everyCheckHasARemedy() {
	r.t.Helper()
	out, _, _ := r.playlet("explain", "node", "-v", "-o", "json")
	var got api.Explanations
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Items) != 1 {
		r.t.Fatalf("%v\n%s", err, out)
	}
	tested := []string{"runtime", "supervisors", "sources", "pods", "listeners", "probes", "dns", "identity", "port", "shutdown",
		"ping", "volumes"} // the last two: it never fails, and its notes have a remedy each
	checks := 0
	for _, line := range got.Items[0].Evidence {
		if name, _, isCheck := strings.Cut(line, ": "); isCheck && !slices.Contains(tested, name) {
			r.t.Errorf("%s is no check with a remedy", name)
		}
		checks++
	}
	if checks < len(tested) {
		r.t.Errorf("only %d checks in %s", checks, out)
	}
}
