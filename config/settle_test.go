package config

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNodeName(t *testing.T) {
	for _, test := range []struct{ override, host, want string }{
		{"", "host", "host"},
		{"", " Host.Example.ORG\n", "host.example.org"},
		{"Other", "host", "other"},
		{" Node-1 ", "host", "node-1"},
	} {
		got, err := nodeName(test.override, func() (string, error) { return test.host, nil })
		if err != nil || got != test.want {
			t.Errorf("override %q, host %q: got %q, %v, want %q", test.override, test.host, got, err, test.want)
		}
	}
	if _, err := nodeName(" ", testHost); err == nil || !strings.Contains(err.Error(), "--hostname-override") {
		t.Errorf("a blank override: %v", err)
	}
	if _, err := nodeName("", func() (string, error) { return "", errors.New("no host") }); err == nil ||
		!strings.Contains(err.Error(), "no host") {
		t.Errorf("a host without name: %v", err)
	}
}

func TestOddNodeNameIsWarnedAbout(t *testing.T) {
	_, warnings, err := loadArgs(t, "--hostname-override=my_host", "--anonymous-auth=false")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(warnings, func(w Warning) bool { return strings.Contains(w.Message, `"my_host"`) }) {
		t.Errorf("warnings %v", warnings)
	}
}

func TestNodeIPs(t *testing.T) {
	for _, test := range []struct {
		given string
		want  []string
		wrong string
	}{
		{given: ""},
		{given: "192.0.2.1", want: []string{"192.0.2.1"}},
		{given: "::", want: []string{"::"}},
		{given: "0.0.0.0", want: []string{"0.0.0.0"}},
		{given: "192.0.2.1,2001:db8::1", want: []string{"192.0.2.1", "2001:db8::1"}},
		{given: "2001:db8::1, 192.0.2.1", want: []string{"2001:db8::1", "192.0.2.1"}},
		{given: "nowhere", wrong: `"nowhere"`},
		{given: "192.0.2.1,", wrong: `""`},
		{given: "192.0.2.1,192.0.2.2", wrong: "families"},
		{given: "192.0.2.1,::", wrong: "unspecified"},
		{given: "192.0.2.1,2001:db8::1,192.0.2.3", wrong: "two"},
	} {
		got, err := parseNodeIPs(test.given)
		if test.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%q: error %v, want one with %q", test.given, err, test.wrong)
			}
			continue
		}
		said := []string(nil)
		for _, addr := range got {
			said = append(said, addr.String())
		}
		if err != nil || !slices.Equal(said, test.want) {
			t.Errorf("%q: got %v, %v", test.given, said, err)
		}
	}
	_, _, err := loadArgs(t, "--node-ip=nowhere")
	oneLineWith(t, err, `--node-ip: invalid value "nowhere"`)
	if n, _, err := loadArgs(t, "--node-ip=192.0.2.9"); err != nil || n.NodeIPs[0] != netip.MustParseAddr("192.0.2.9") {
		t.Errorf("%v %v", n, err)
	}
}

func TestEndpoints(t *testing.T) {
	n, _, err := loadArgs(t)
	const containerd = "unix:///run/containerd/containerd.sock"
	if err != nil || n.Kubelet.ContainerRuntimeEndpoint != containerd || n.ImageEndpoint() != containerd {
		t.Errorf("%v %v", n, err)
	}
	n, warnings, err := loadArgs(t, "--container-runtime-endpoint=/run/x.sock", "--image-service-endpoint=unix:///run/y.sock",
		"--anonymous-auth=false")
	if err != nil || n.Kubelet.ContainerRuntimeEndpoint != "unix:///run/x.sock" || n.ImageEndpoint() != "unix:///run/y.sock" {
		t.Errorf("%v %v", n, err)
	}
	if !slices.ContainsFunc(warnings, func(w Warning) bool {
		return w.Flag == "--container-runtime-endpoint" && strings.Contains(w.Message, "unix:///run/x.sock")
	}) {
		t.Errorf("a bare path is not warned about: %v", warnings)
	}
}

func TestCrashLoopBackOff(t *testing.T) {
	for name, test := range map[string]struct {
		content      string
		first, limit time.Duration
	}{
		"default":                {"", 10 * time.Second, 300 * time.Second},
		"lower cap":              {"crashLoopBackOff: {maxContainerRestartPeriod: 30s}", 10 * time.Second, 30 * time.Second},
		"cap below the first":    {"crashLoopBackOff: {maxContainerRestartPeriod: 2s}", 2 * time.Second, 2 * time.Second},
		"without the cap's gate": {"featureGates: {KubeletCrashLoopBackOffMax: false}", 10 * time.Second, 300 * time.Second},
		"reduced": {"featureGates: {KubeletCrashLoopBackOffMax: false, ReduceDefaultCrashLoopBackOffDecay: true}",
			time.Second, time.Minute},
		"reduced, own cap": {"crashLoopBackOff: {maxContainerRestartPeriod: 90s}\nfeatureGates: {ReduceDefaultCrashLoopBackOffDecay: true}", time.Second, 90 * time.Second},
	} {
		n, _, err := loadArgs(t, "--config="+write(t, t.TempDir(), "f", header+test.content))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if first, limit := n.CrashLoopBackOff(); first != test.first || limit != test.limit {
			t.Errorf("%s: %v up to %v, want %v up to %v", name, first, limit, test.first, test.limit)
		}
	}
}

func TestImagePulls(t *testing.T) {
	for content, want := range map[string]int{
		"": 1, "maxParallelImagePulls: 1": 1, "maxParallelImagePulls: 4": 4, "serializeImagePulls: false": 0,
		"serializeImagePulls: false\nmaxParallelImagePulls: 3": 3,
	} {
		n, _, err := loadArgs(t, "--config="+write(t, t.TempDir(), "f", header+content))
		if err != nil || n.MaxParallelImagePulls() != want {
			t.Errorf("%q: %v, want %d", content, err, want)
		}
	}
}

func TestPresentableMasksHeaders(t *testing.T) {
	n, _, err := loadArgs(t, "--manifest-url=https://h/p", "--manifest-url-header=Authorization:secret")
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Presentable().StaticPodURLHeader["Authorization"]; len(got) != 1 || got[0] == "secret" {
		t.Errorf("shown: %v", got)
	}
	if got := n.Flags["manifest-url-header"] + n.Flags["manifest-url"]; strings.Contains(got, "secret") || strings.Contains(got, "h/p") {
		t.Errorf("flags: %s", got)
	}
	if n.Flags["v"] != "0" {
		t.Errorf("flags: %v", n.Flags)
	}
	if n.Kubelet.StaticPodURLHeader["Authorization"][0] != "secret" {
		t.Error("the configuration itself was masked")
	}
}

// Errors contain no possible credentials: they appear in journals, and people paste them.
func TestErrorsTellNoCredentials(t *testing.T) {
	for _, args := range [][]string{
		{"--manifest-url=https://h/p", "--manifest-url-header=Authorization=Bearer hunter2"},
		{"--manifest-url=https://h/p", "--manifest-url-header=Good:x,hunter2"},
		{"--manifest-url=https://h/p", "--manifest-url-header=Authorization Bearer hunter2:x"},
		{"--manifest-url=https://h/p", "--manifest-url-header=Authorization=hunter2:x"},
		{"--manifest-url=ftp://u:hunter2@h/p"},
		{"--manifest-url=ftp://h/p?token=hunter2"},
		{"--manifest-url=http://u:hunter2@h:port"},
		{"--manifest-url=hunter2"},
		{"--config=" + write(t, t.TempDir(), "f", header+"staticPodURLHeader: {Authorization: Bearer hunter2}\n")},
		{"--config=" + write(t, t.TempDir(), "g", header+"staticPodURLHeader: {Authorization: [[hunter2]]}\n")},
	} {
		_, _, err := loadArgs(t, args...)
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "manifest-url") &&
			!strings.Contains(err.Error(), "staticPodURL") {
			t.Errorf("%q: %v", args, err)
		}
	}
	n, _, err := loadArgs(t, "--manifest-url=https://u:hunter2@h/p?token=hunter2")
	if err != nil || n.Presentable().StaticPodURL != "https://h/p?<masked>" {
		t.Errorf("shown: %q, %v", n.Presentable().StaticPodURL, err)
	}
}

func TestSmallAccessors(t *testing.T) {
	n, _, err := loadArgs(t, "--runonce", "--container-log-max-size=2Ki", "--register-node=false", "-v=3")
	if err != nil {
		t.Fatal(err)
	}
	if !n.Kubelet.RunOnce || n.ContainerLogMaxSize() != 2048 || n.RegisterNode() || n.Verbosity() != 3 ||
		n.Kubelet.SyncFrequency.Duration != time.Minute || n.Kubelet.PodLogsDir != "/var/log/pods" ||
		n.AdminSocket != "/run/playlet/admin.sock" {
		t.Errorf("%+v", n)
	}
	if got := (Warning{Flag: "--x", Message: "y"}).String(); got != "--x: y" {
		t.Errorf("a warning reads %q", got)
	}
}

func TestCloudProvider(t *testing.T) {
	for given, want := range map[string]string{"": "", "external": "external", "aws": ""} {
		n, warnings, err := loadArgs(t, "--cloud-provider="+given, "--anonymous-auth=false")
		if err != nil || n.CloudProvider != want {
			t.Errorf("%q: %v, %v", given, n, err)
		}
		warned := slices.ContainsFunc(warnings, func(w Warning) bool { return w.Flag == "--cloud-provider" })
		if warned != (given == "aws") { // about a removed provider
			t.Errorf("%q: warned %t", given, warned)
		}
	}
}

// The command line that another agent's lock shows has no secret.
func TestCommandLineMasks(t *testing.T) {
	got := CommandLine([]string{"playlet", "--manifest-url=https://h/p", "--manifest_url_header", "Authorization:secret", "--v=4",
		"--manifest-url-header"})
	want := []string{"playlet", "--manifest-url=" + masked, "--manifest_url_header", masked, "--v=4", "--manifest-url-header"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
