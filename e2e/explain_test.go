//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// Of each broken pod "playlet pods" names the cause in one line, with which "playlet explain" begins.
func TestBrokenPodsNameTheirCause(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := agentWith(t, s, func(a *stack.Agent) { a.Args = append(a.Args, "--object-dir="+t.TempDir()) })
	socket := "--admin-socket=" + a.AdminSocket
	missing, down := s.Registry.Ref("missing"), "127.0.0.1:1/none:1"
	pod := func(more string) string { return "containers: [{name: c, image: HELLO, args: [sleep]" + more + "}]" }
	command := func(args string) string { return "containers: [{name: c, image: HELLO, args: [" + args + "]}]" }
	probe := "{periodSeconds: 1, failureThreshold: 2, exec: {command: [/hello, exit, \"3\"]}}"
	broken := map[string]struct{ spec, cause string }{
		"image":    {"containers: [{name: c, image: \"" + missing + "\"}]", "container c: image " + missing + " not found in its registry"},
		"registry": {"containers: [{name: c, image: \"" + down + "\"}]", "container c: image " + down + " cannot be pulled: its registry does not answer"},
		"name":     {"containers: [{name: c, image: Not/A:Name}]", "container c: image Not/A:Name is not a valid name"},
		"never": {"containers: [{name: c, image: \"" + missing + "\", imagePullPolicy: Never}]",
			"container c: image " + missing + " is not on this node, and imagePullPolicy is Never"},
		"config": {pod(", volumeMounts: [{name: v, mountPath: /v}]") + "\nvolumes: [{name: v, configMap: {name: settings}}]",
			"ConfigMap default/settings does not exist; it is needed by volume v"},
		"host": {pod(", volumeMounts: [{name: v, mountPath: /v}]") + "\nvolumes: [{name: v, hostPath: {path: /no/such/place, type: Directory}}]",
			"volume v cannot be mounted: hostPath /no/such/place is not what its type Directory asks for: nothing is there"},
		"env": {pod(", env: [{name: E, valueFrom: {secretKeyRef: {name: s, key: k}}}]"), "Secret default/s does not exist; it is needed by container c"},
		"root": {pod(", securityContext: {runAsNonRoot: true, runAsUser: 1000}, command: [/no/such/command]"),
			`container c: its command "/no/such/command" is not in the image`},
		"oom": {`containers: [{name: c, image: HELLO, args: [alloc, "200", --, sleep], resources: {limits: {memory: 32Mi}}}]`,
			"container c is killed for using more than 32Mi"},
		"command":   {"containers: [{name: c, image: HELLO, command: [nope]}]", `container c: its command "nope" is not in the image`},
		"exits":     {command(`exit, "3"`), "container c ends with exit code 3"},
		"completes": {command(`exit, "0"`), "container c ends by itself, with exit code 0, and is started again by its restartPolicy"},
		"once":      {command(`exit, "4"`) + "\nrestartPolicy: Never", "container c ended with exit code 4"},
		"init":      {`initContainers: [{name: setup, image: HELLO, args: [exit, "1"]}]` + "\n" + pod(""), "init container setup ends with exit code 1"},
		"initing":   {`initContainers: [{name: setup, image: HELLO, args: [sleep]}]` + "\n" + pod(""), "init container setup still runs, and all others wait for its end"},
		"startup":   {pod(", startupProbe: " + strings.Replace(probe, "2", "999", 1)), "container c: its startup probe fails: "},
		"ready":     {pod(", readinessProbe: " + probe), "container c: its readiness probe fails: "},
		"live":      {pod(", livenessProbe: "+probe) + "\nterminationGracePeriodSeconds: 1", "container c is ended since its liveness probe fails: "},
		"hook":      {pod(", lifecycle: {postStart: {exec: {command: [/hello, sleep]}}}"), "container c runs, and its post-start hook (/hello sleep) has not ended yet"},
		"selector":  {pod("") + "\nnodeSelector: {disk: ssd}", "the pod's nodeSelector wants the label disk=ssd, which this node has not"},
		"port1":     {pod(", ports: [{containerPort: 80, hostPort: 8080}]"), ""},
		"port2":     {pod(", ports: [{containerPort: 80, hostPort: 8080}]"), ""},
	}
	write := func(name, spec string) { must(t, a.Write(name+".yaml", manifest(s, name, spec))) }
	write("stuck", pod(", lifecycle: {preStop: {sleep: {seconds: 600}}}")+"\nterminationGracePeriodSeconds: 700")
	row(t, socket, []string{"pods"}, "default", onNode("stuck"), "1/1", "Running")
	for name, one := range broken {
		write(name, one.spec)
	}
	must(t, a.Remove("stuck.yaml"))
	broken["stuck"] = struct{ spec, cause string }{"", "the pod is ending because no source wants it any more: " +
		"container c is given its grace period for its pre-stop hook (sleep 600s) and its end"}
	says := func(want string) {
		t.Helper()
		seen := regexp.MustCompile("(?m)^" + want + ".*$")
		await(t, func() error {
			_, said, _ := playlet(t, "pods", socket)
			if line := seen.FindString(said); line != "" {
				t.Log(line)
				return nil
			}
			return fmt.Errorf("nothing is like %s:\n%s", want, said)
		})
	}
	for name, one := range broken {
		if one.cause != "" {
			says(regexp.QuoteMeta("default/" + onNode(name) + ": " + one.cause))
		}
	}
	says("default/port[12].*: host port 8080/TCP .*is used by pod default/port[12]")
	await(t, func() error {
		out, errs, _ := playlet(t, "explain", "pod/oom", "-v", socket)
		for _, want := range []string{"container c is killed for using more than 32Mi\n  state:", "  to unblock it:", "exit code 137", " RunContainer "} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("%q is not said: %s%s", want, out, errs)
			}
		}
		return nil
	})
	out, _, _ := playlet(t, "explain", "pod/registry", socket)
	t.Log("\n" + out)
	if out, errs, code := playlet(t, "explain", "node", socket); code != 0 || out == "" {
		t.Errorf("the node: %d %s", code, errs)
	} else {
		t.Log("\n" + out)
	}
}
