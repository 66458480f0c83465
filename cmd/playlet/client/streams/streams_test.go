package streams

import (
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNumberedPorts(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{Name: "http", ContainerPort: 80}}}}}}
	for text, want := range map[string]string{
		"80": "80:80", "8080:80": "8080:80", ":80": "0:80", "8080:http": "8080:80", "http": "80:80",
		"x": "", "80:": "", "80:0": "", "70000": "", "a:80": "", "1:2:3": "", "-1": "",
	} {
		got, err := numbered(pod, []string{text})
		if want == "" && err == nil || want != "" && (err != nil || got[0] != want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// A port that is taken at one address of localhost is an error, because clients of localhost may reach the other program.
func TestPortForward_TakenOnOneAddress(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	want := "port " + port + " of this machine: another program listens there; choose another, or none (:REMOTE) for any that is free"
	c := &forwarder{addresses: []string{"localhost"}}
	if err := c.free([]string{"0:80", port + ":80"}); err == nil || err.Error() != want {
		t.Errorf("taken: got %v, want %s", err, want)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	c = &forwarder{addresses: []string{"localhost"}}
	if err := c.free([]string{"0:80", port + ":80"}); err != nil {
		t.Errorf("free: got %v", err)
	}
}

// Invalid arguments are rejected in one line, with the correct form.
func TestArgumentsOfStreams(t *testing.T) {
	f := fake.Start(t, newCpCommand, newPortForwardCommand, newAttachCommand)
	reads := fake.Pod("a", v1.PodRunning, fake.Runs(true))
	reads.Pod.Spec.Containers = []v1.Container{{Name: "c"}}
	f.Has(reads)
	for args, want := range map[string]string{
		"cp a":                               "copy what where? (playlet cp web:/path ./path; playlet cp --help shows examples)",
		"cp a b":                             "one of the two is in a container (POD:PATH), the other on this machine",
		"cp web:/a db:/b":                    "one of the two is in a container (POD:PATH), the other on this machine",
		"cp web: a":                          "no path is named after the colon (POD:PATH)",
		"cp none:/a b":                       `there is no pod "none" in any namespace (playlet pods lists them)`,
		"port-forward web":                   "which pod, and which ports? (playlet port-forward web 8080:80)",
		"port-forward web http":              `port "http": write LOCAL:REMOTE or REMOTE, numbers up to 65535; REMOTE may be a port's name in the pod's spec`,
		"port-forward none 80":               `there is no pod "none" in any namespace (playlet pods lists them)`,
		"port-forward web 80 --address=here": "here is not a valid IP",
		"attach -i web":                      `container "c" reads no input: its spec lacks stdin: true; attach without -i`,
		"attach":                             "which pod? (playlet pods lists them; playlet attach --help shows examples)",
	} {
		out, errs, code := f.Command(t, strings.Fields(args)...)
		if out != "" || errs != "playlet: "+want+"\n" || code != 1 {
			t.Errorf("%s: %d %q %q, want %q", args, code, out, errs, want)
		}
	}
}

// -c is completed with the containers of the pod that is named, or of all.
func TestContainersAreCompleted(t *testing.T) {
	f := fake.Start(t, newExecCommand, newLogsCommand, newAttachCommand)
	for name, container := range map[string]string{"web": "main", "db": "store"} {
		p := &api.Pod{Pod: &v1.Pod{}}
		p.Pod.Name, p.Pod.Namespace, p.Pod.UID = name, "default", types.UID(name)
		p.Pod.Spec.InitContainers = []v1.Container{{Name: "init"}}
		p.Pod.Spec.Containers = []v1.Container{{Name: container}}
		if name == "db" {
			p.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{
				{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}},
			}
		}
		f.Has(p)
	}
	for args, want := range map[string]string{
		"exec web -c": "init\nmain\n", "logs -c": "debug\ninit\nmain\nstore\n", "attach default/db -c": "debug\ninit\nstore\n",
		"exec none -c": "", "exec -n": "default\n", "logs -n": "default\n", "attach": "db\nweb\n",
	} {
		command, rest, _ := strings.Cut(args, " ")
		all := append([]string{"__complete", command, "--admin-socket=" + f.Socket}, append(strings.Fields(rest), "")...)
		if out, problems, code := fake.Run(all, f.Commands...); code != 0 || out != want+":4\n" {
			t.Errorf("%s: %d\n%s%s\nwant %s", args, code, out, problems, want)
		}
	}
}
