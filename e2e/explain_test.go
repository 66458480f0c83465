//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// For each broken pod "playlet pods", "playlet explain" and the last Event name the true cause, in the same sentence. All are
// broken at once, on real containers. Causes that need a separate runtime or API server are in
// TestTroublesOfTheNodeNameTheirCause and TestTroublesOfTheClusterNameTheirCause.
func TestBrokenPodsNameTheirCause(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	dir, objects := t.TempDir(), t.TempDir()
	putObject(t, objects, "settings.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: default}\ndata: {color: blue}\n")
	must(t, os.WriteFile(filepath.Join(dir, "bad"), []byte("this is no program"), 0o755))
	must(t, os.Symlink("/", filepath.Join(dir, "out")))
	at := registries(t, s)
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, manifest(s, "first", "containers: [{name: c, image: HELLO, args: [sleep]}]"))
	}))
	t.Cleanup(second.Close)
	a := agentWith(t, s, func(a *stack.Agent) {
		a.Args = append(a.Args, "--object-dir="+objects, "--enable-chaos", "--manifest-url="+second.URL)
	})
	socket := "--admin-socket=" + a.AdminSocket
	missing, down := s.Registry.Ref("missing"), "127.0.0.1:1/none:1"
	pod := func(more string) string { return "containers: [{name: c, image: HELLO, args: [sleep]" + more + "}]" }
	command := func(args string) string { return "containers: [{name: c, image: HELLO, args: [" + args + "]}]" }
	image := func(ref string) string { return "containers: [{name: c, image: \"" + ref + "\"}]" }
	volume := func(source string) string {
		return pod(", volumeMounts: [{name: v, mountPath: /v}]") + "\nvolumes: [{name: v, " + source + "}]"
	}
	mount := func(mount string) string {
		return pod(", volumeMounts: [{name: v, "+mount+"}]") + "\nvolumes: [{name: v, hostPath: {path: " + dir + "}}]"
	}
	probe := "{periodSeconds: 1, failureThreshold: 2, exec: {command: [/hello, exit, \"3\"]}}"
	broken := map[string]struct{ spec, cause string }{
		"image":     {image(missing), "container c: image " + missing + " not found in its registry"},
		"registry":  {image(down), "container c: image " + down + " cannot be pulled: its registry does not answer"},
		"name":      {image("Not/A:Name"), "container c: image Not/A:Name is not a valid name"},
		"denied":    {image(at.denied), "container c: image " + at.denied + " cannot be pulled: its registry denied access"},
		"untrusted": {image(at.tls), "container c: image " + at.tls + " cannot be pulled: the runtime does not trust its registry's certificate"},
		"plain":     {image(at.plain), "container c: image " + at.plain + " cannot be pulled: its registry uses plain HTTP, and the runtime expects HTTPS"},
		"dns":       {image("nowhere.invalid/x:1"), "container c: image nowhere.invalid/x:1 cannot be pulled: the name of its registry cannot be resolved"},
		"failing":   {image(at.failing), "container c: image " + at.failing + " cannot be pulled: "},
		"never": {"containers: [{name: c, image: \"" + missing + "\", imagePullPolicy: Never}]",
			"container c: image " + missing + " is not on this node, and imagePullPolicy is Never"},
		"config": {volume("configMap: {name: none}"), "ConfigMap default/none does not exist; it is needed by volume v"},
		"secret": {volume("secret: {secretName: tls}"), "Secret default/tls does not exist; it is needed by volume v"},
		"key":    {volume("configMap: {name: settings, items: [{key: size, path: size}]}"), `ConfigMap default/settings has no key "size"; it is needed by volume v`},
		"host": {volume("hostPath: {path: /no/such/place, type: Directory}"),
			"volume v cannot be mounted: hostPath /no/such/place is not what its type Directory asks for: nothing is there"},
		"type":   {volume("hostPath: {path: " + dir + ", type: File}"), "volume v cannot be mounted: hostPath " + dir + " is not what its type File asks for: "},
		"escape": {mount("mountPath: /v, subPath: out/etc"), "container c cannot be created: "},
		"within": {mount("mountPath: /v, readOnly: true}, {name: v, mountPath: /v/none"),
			`container c: the mount at "/v/none" has no mount point, and none can be made`},
		"subexpr": {mount("mountPath: /v, subPathExpr: $(NOPE)/x"), `container c cannot be created: subPathExpr "$(NOPE)/x" of volume "v": the container's environment has no value for NOPE`},
		"env":     {pod(", env: [{name: E, valueFrom: {secretKeyRef: {name: s, key: k}}}]"), "Secret default/s does not exist; it is needed by container c"},
		"envkey":  {pod(", env: [{name: E, valueFrom: {configMapKeyRef: {name: settings, key: size}}}]"), "ConfigMap default/settings has no key \"size\"; it is needed by container c"},
		"root":    {pod(", securityContext: {runAsNonRoot: true, runAsUser: 0}"), "container c cannot be created: runAsNonRoot is set, but so is runAsUser: 0"},
		"oom": {`containers: [{name: c, image: HELLO, args: [alloc, "200", --, sleep], resources: {limits: {memory: 32Mi}}}]`,
			"container c was killed for using more than 32Mi of memory"},
		"command":   {"containers: [{name: c, image: HELLO, command: [nope]}]", `container c: its command "nope" is not in the image`},
		"format":    {strings.Replace(volume("hostPath: {path: "+dir+"/bad, type: File}"), "args: [sleep]", "command: [/v], terminationMessagePolicy: FallbackToLogsOnError", 1), "container c: its command is not a program for this node's architecture"},
		"folder":    {strings.Replace(mount("mountPath: /v"), "args: [sleep]", "command: [/v]", 1), `container c: its command "/v" `},
		"exits":     {command(`exit, "3"`), "container c exited with code 3"},
		"lost":      {command(`exit, "127"`), "container c exited with code 127: a command was not found"},
		"completes": {command(`exit, "0"`), "container c exited with code 0, and its restartPolicy starts it again"},
		"once":      {command(`exit, "4"`) + "\nrestartPolicy: Never", "container c exited with code 4"},
		"init":      {`initContainers: [{name: setup, image: HELLO, args: [exit, "1"]}]` + "\n" + pod(""), "init container setup exited with code 1"},
		"initing":   {`initContainers: [{name: setup, image: HELLO, args: [sleep]}]` + "\n" + pod(""), "init container setup is still running, and the others wait for it to finish"},
		"sidecar": {"initContainers: [{name: side, image: HELLO, args: [sleep], restartPolicy: Always, startupProbe: " + strings.Replace(probe, "2", "999", 1) + "}]\n" + pod(""),
			"init container side: its startup probe fails: "},
		"startup":  {pod(", startupProbe: " + strings.Replace(probe, "2", "999", 1)), "container c: its startup probe fails: "},
		"ready":    {pod(", readinessProbe: " + probe), "container c: its readiness probe fails: "},
		"live":     {pod(", livenessProbe: "+probe) + "\nterminationGracePeriodSeconds: 1", "container c was killed because its liveness probe failed: "},
		"hook":     {pod(", lifecycle: {postStart: {exec: {command: [/hello, sleep]}}}"), "container c is running, and its post-start hook (/hello sleep) has not finished yet"},
		"posthook": {pod(", lifecycle: {postStart: {exec: {command: [/hello, exit, \"3\"]}}}"), "container c: its post-start hook failed: the command ended with code 3"},
		"deadline": {pod("") + "\nactiveDeadlineSeconds: 1\nterminationGracePeriodSeconds: 1", "the pod was active for longer than its activeDeadlineSeconds (1)"},
		"selector": {pod("") + "\nnodeSelector: {disk: ssd}", "the pod's nodeSelector wants the label disk=ssd, which this node has not"},
		"sysctl":   {pod("") + "\nsecurityContext: {sysctls: [{name: kernel.msgmax, value: \"1\"}]}", `forbidden sysctl: "kernel.msgmax" is not safe, and allowedUnsafeSysctls does not name it`},
		"class":    {pod("") + "\nruntimeClassName: nope", `the pod's sandbox cannot be created: RuntimeClass "nope" does not exist`},
		"port":     {pod(", ports: [{containerPort: 80, hostPort: 8080}]"), ""},
		"taken":    {pod(", ports: [{containerPort: 80, hostPort: 8080}]"), "host port 8080/TCP "},
		"first":    {pod(""), ""},
		"bug":      {pod(""), "the pod's actor failed too often and is in quarantine, and its containers are left alone: "},
	}
	write := func(name, spec string) { must(t, a.Write(name+".yaml", manifest(s, name, spec))) }
	slow := pod(", lifecycle: {preStop: {sleep: {seconds: 600}}}") + "\nterminationGracePeriodSeconds: 700"
	for _, name := range []string{"stuck", "changed"} {
		write(name, slow)
	}
	write("port", broken["port"].spec)
	write("bug", broken["bug"].spec)
	for _, name := range []string{"stuck", "changed", "port", "bug"} {
		row(t, socket, []string{"pods"}, "default", onNode(name), "1/1", "Running")
	}
	for name, one := range broken {
		write(name, one.spec)
	}
	must(t, a.Remove("stuck.yaml"))
	write("changed", pod(""))
	must(t, a.Write("unknown.yaml", manifest(s, "unknown", pod(", terminationMessagePolicy: Nope"))))
	if _, notes, code := playlet(t, "chaos", "kill", "pods/"+onNode("bug"), "--count=30", "--force", "--wait=false", socket); code != 0 {
		t.Error(notes)
	}

	want := map[string]situation{
		"default/" + onNode("stuck"): {cause: "the pod is ending because its manifest " + a.ManifestDir + "/stuck.yaml was removed or no longer contains it: " +
			"container c has up to 700s to run its pre-stop hook (sleep 600s) and to stop"},
		"default/" + onNode("changed"): {cause: "a pod of the same name is still ending"},
	}
	for name, one := range broken {
		if one.cause != "" {
			want["default/"+onNode(name)] = situation{cause: one.cause, quiet: name == "initing" || name == "hook"}
		}
	}
	if n := prove(t, a, want); n < 40 {
		t.Errorf("only %d situations", n)
	} else {
		t.Logf("%d situations", n)
	}
	for args, words := range map[string]string{"explain pod/unknown": "a manifest that may be the pod's cannot be used: ", "events": "FailedValidation"} {
		await(t, func() error {
			out, errs, _ := playlet(t, append(strings.Fields(args), socket)...)
			if !strings.Contains(out, words) || !strings.Contains(out, "unknown.yaml") || !strings.Contains(out, "spec.containers[0].terminationMessagePolicy") {
				return fmt.Errorf("%s: %s%s", args, out, errs)
			}
			return nil
		})
	}
	await(t, func() error {
		out, errs, _ := playlet(t, "explain", "pod/oom", "-v", socket)
		for _, want := range []string{"container c was killed for using more than 32Mi of memory\n  state:", "  to fix it:", "exit code 137", " RunContainer "} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("%q is not said: %s%s", want, out, errs)
			}
		}
		return nil
	})
	if out, errs, code := playlet(t, "explain", "node", socket); code != 0 || out == "" {
		t.Errorf("the node: %d %s", code, errs)
	} else {
		t.Log("\n" + out)
	}
}

// images are names in registries that are broken in one way each.
type images struct{ denied, failing, tls, plain string }

func registries(t *testing.T, s *stack.Stack) images {
	t.Helper()
	s.Registry.Intercept(func(r *http.Request) devimages.Fault {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v2/denied/"):
			return devimages.Fault{Status: http.StatusUnauthorized}
		case strings.HasPrefix(r.URL.Path, "/v2/failing/"):
			return devimages.Fault{Status: http.StatusNotImplemented}
		}
		return devimages.Fault{}
	})
	server := func(start func(*httptest.Server)) string {
		l, err := net.Listen("tcp", isolate.NodeIP+":0")
		must(t, err)
		one := httptest.NewUnstartedServer(http.NotFoundHandler())
		must(t, one.Listener.Close())
		one.Listener = l
		start(one)
		t.Cleanup(one.Close)
		return l.Addr().String() + "/x:1"
	}
	return images{s.Registry.Ref("denied"), s.Registry.Ref("failing"), server((*httptest.Server).StartTLS), server((*httptest.Server).Start)}
}
