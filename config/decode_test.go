package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// As the kubelet the agent starts with a file that has unknown, wrongly cased or doubled fields, and warns of each; the commands
// doctor and install refuse it.
func TestLoad_IgnoredFields(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		want    []string
		maxPods int32
	}{
		"unknown field":        {header + "maxPod: 3", []string{`unknown field "maxPod", line 3: did you mean maxPods?`}, 110},
		"unknown nested field": {header + "authentication: {x509: {clientCa: x}}", []string{`unknown field "authentication.x509.clientCa"`}, 110},
		"two unknown fields":   {header + "a: 1\nb: 2\nmaxPods: 5", []string{`unknown field "a", line 3`, `unknown field "b", line 4`}, 5},
		"wrong case":           {header + "MaxPods: 3", []string{`unknown field "MaxPods", line 3: did you mean maxPods?`}, 110},
		"duplicate":            {header + "maxPods: 3\nmaxPods: 4", []string{`"maxPods" already set`}, 4},
		"duplicate in JSON": {`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":1,"maxPods":2}`,
			[]string{`"maxPods" already set`}, 2},
	} {
		for _, dir := range []bool{false, true} {
			path := write(t, t.TempDir(), "kubelet.conf", c.content)
			flag, value := "--config", path
			if dir {
				flag, value = "--config-dir", filepath.Dir(path)
			}
			node, warnings, err := loadArgs(t, flag+"="+value)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if node.Kubelet.MaxPods != c.maxPods {
				t.Errorf("%s: got maxPods %d, want %d", name, node.Kubelet.MaxPods, c.maxPods)
			}
			if len(warnings) != len(c.want) {
				t.Errorf("%s: %d warnings, want %d: %v", name, len(warnings), len(c.want), warnings)
				continue
			}
			for i, w := range warnings {
				if w.Flag != flag || !w.Mistake || !strings.HasPrefix(w.Message, path+": ") || !strings.Contains(w.Message, c.want[i]) {
					t.Errorf("%s: got %+v, want %s", name, w, c.want[i])
				}
			}
		}
	}
}

func TestBadFiles(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"wrong type": {header + "maxPods: lots", "maxPods"},
		"number for string": {header + "evictionHard: {memory.available: 5}",
			"evictionHard[memory.available]: must be text; put it in quotes"},
		"number for duration": {header + "syncFrequency: 5", "syncFrequency: it must be a duration"},
		"text for a fraction": {header + "memoryThrottlingFactor: high", "memoryThrottlingFactor: must be a number"},
		"below zero":          {header + "logging: {verbosity: -1}", "logging.verbosity: must not be negative"},
		"bad duration":        {header + "syncFrequency: soon", `syncFrequency: it must be a duration`},
		"bad nested duration": {header + "maxPods: 3\nauthentication: {webhook: {enabled: true, cacheTTL: soon}}",
			"authentication.webhook.cacheTTL: "},
		"bad quantity in list": {header + "reservedMemory: [{numaNode: 0, limits: {memory: lots}}]", "reservedMemory[0].limits[memory]: "},
		"too large a number":   {header + "maxPods: 3000000000", "maxPods: "},
		"bad YAML":             {header + "maxPods: [", "line 3"},
		"empty":                {"", "0 documents"},
		"comments only":        {"# nothing\n---\n# here\n", "0 documents"},
		"two documents":        {header + "---\n" + header, "2 documents"},
		"no kind":              {"apiVersion: kubelet.config.k8s.io/v1beta1", `kind ""`},
		"other kind":           {"apiVersion: v1\nkind: ConfigMap", `kind "ConfigMap"`},
		"a pod":                {"apiVersion: v1\nkind: Pod", "--pod-manifest-path"},
		"other version":        {"apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration", `apiVersion "kubelet.config.k8s.io/v1"`},
		"a list":               {"- 1", "KubeletConfiguration"},
		"bad value":            {header + "maxPods: -1", "maxPods (--max-pods): invalid value -1"},
		"unknown gate": {header + "featureGates: {Sorcery: true}",
			"featureGates.Sorcery (--feature-gates): invalid value true"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, t.TempDir(), "kubelet.yaml", test.content)
			_, _, err := loadArgs(t, "--config="+path)
			oneLineWith(t, err, test.want)
			if !strings.Contains(name, "value") && !strings.Contains(name, "gate") {
				oneLineWith(t, err, path)
			}
		})
	}
}

// oneLineWith fails the test unless err is one line that contains the text.
func oneLineWith(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", want)
	}
	if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), want) {
		t.Errorf("error %q: want one line with %q", err, want)
	}
}

func TestUnreadableFiles(t *testing.T) {
	folder := t.TempDir()
	missing := filepath.Join(folder, "missing")
	_, _, err := loadArgs(t, "--config="+missing)
	oneLineWith(t, err, missing)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v is not os.ErrNotExist", err)
	}
	_, _, err = loadArgs(t, "--config-dir="+missing)
	oneLineWith(t, err, "--config-dir: ")
	oneLineWith(t, err, missing)

	big := write(t, folder, "big.yaml", header+"#"+strings.Repeat("x", 4<<20))
	_, _, err = loadArgs(t, "--config="+big)
	oneLineWith(t, err, big)

	bad := write(t, folder, "d/1.conf", header+"maxPods: nonsense")
	_, _, err = loadArgs(t, "--config-dir="+filepath.Dir(bad))
	oneLineWith(t, err, bad)
	oneLineWith(t, err, "maxPods")
}

func TestGoodFiles(t *testing.T) {
	for name, content := range map[string]string{
		"YAML":            header + "healthzPort: 7",
		"JSON":            `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","healthzPort":7}`,
		"with separators": "# a comment\n---\n" + header + "healthzPort: 7\n---\n",
		"with a comment":  "--- # first\n" + header + "healthzPort: 7\n",
	} {
		t.Run(name, func(t *testing.T) {
			node, warnings, err := loadArgs(t, "--config="+write(t, t.TempDir(), "f", content))
			if err != nil || len(warnings) != 0 {
				t.Fatalf("%v %v", warnings, err)
			}
			if *node.Kubelet.HealthzPort != 7 || *node.Kubelet.Authentication.Anonymous.Enabled ||
				node.Kubelet.ReadOnlyPort != 0 {
				t.Errorf("%+v", node.Kubelet)
			}
		})
	}
}
