package systemd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestInstalled(t *testing.T) {
	const etc = "/etc/systemd/system/"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		from  string
	}{
		"nothing":            {},
		"the package's file": {map[string]string{ConfigPath: ""}, []string{"--config=" + ConfigPath}, ConfigPath},
		"the unit of the package": {map[string]string{"/usr/lib/systemd/system/playlet.service": Unit("/usr/bin/playlet", ConfigPath),
			"/etc/default/playlet": "# flags\nPLAYLET_ARGS=--object-dir=/o  --v=2\n"},
			[]string{"--config=" + ConfigPath, "--object-dir=/o", "--v=2"}, "/usr/lib/systemd/system/playlet.service"},
		"install with another file": {map[string]string{etc + UnitName: Unit("/opt/my node/playlet", "/etc/100%/$x y.yaml"),
			"/usr/lib/systemd/system/playlet.service": Unit("/usr/bin/playlet", ConfigPath)},
			[]string{"--config=/etc/100%/$x y.yaml"}, etc + UnitName},
		"a drop-in": {map[string]string{etc + UnitName: Unit("/usr/bin/playlet", ConfigPath),
			etc + UnitName + ".d/10-mine.conf": "[Service]\nEnvironment=\"A=--v=3 --max-pods=9\"\nExecStart=\n" +
				"ExecStart=/usr/bin/playlet --config=/mine.yaml $A\n"},
			[]string{"--config=/mine.yaml", "--v=3", "--max-pods=9"}, etc + UnitName},
		"a kubelet's unit without its configuration": {map[string]string{etc + UnitName: Unit("/usr/bin/playlet", ConfigPath),
			etc + KubeletUnit: strings.ReplaceAll(ForKubeadm(), "/usr/bin/kubelet", "/usr/bin/playlet")},
			[]string{"--config=" + ConfigPath}, etc + UnitName},
		"a kubelet's unit": {map[string]string{etc + UnitName: Unit("/usr/bin/playlet", ConfigPath),
			etc + KubeletUnit:              strings.ReplaceAll(ForKubeadm(), "/usr/bin/kubelet", "/usr/bin/playlet"),
			"/var/lib/kubelet/config.yaml": "", "/var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=\"--v=2 --v=3\"\n"},
			append(kubeadmArgs, "--v=2", "--v=3"), etc + KubeletUnit},
	} {
		root := write(t, c.files)
		args, from, err := Installed(root)
		if err != nil || !slices.Equal(args, c.want) || from != c.from {
			t.Errorf("%s: got %q of %q, %v, want %q of %q", name, args, from, err, c.want, c.from)
		}
	}
}

// kubeadmArgs are the arguments of kubeadm's drop-in.
var kubeadmArgs = []string{"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
	"--kubeconfig=/etc/kubernetes/kubelet.conf", "--config=/var/lib/kubelet/config.yaml"}

// write returns a root folder with these files; text that begins with -> is the target of a link.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		path = filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if target, link := strings.CutPrefix(text, "->"); link {
			err = errors.Join(err, os.Symlink(target, path))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The take-over keeps the arguments of a kubelet, wherever its unit and drop-ins have them, and refuses anything else.
func TestTakeover(t *testing.T) {
	const unitFile = "/usr/lib/systemd/system/kubelet.service"
	const plain = "[Service]\nExecStart=/usr/bin/kubelet\n"
	kubeadm := map[string]string{
		unitFile: plain,
		unitFile + ".d/10-kubeadm.conf": "[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=" + kubeadmArgs[0] + " " + kubeadmArgs[1] +
			"\"\nEnvironment=\"KUBELET_CONFIG_ARGS=" + kubeadmArgs[2] + "\"\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n" +
			"EnvironmentFile=-/etc/default/kubelet\nExecStart=\n" +
			"ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n",
		"/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--node-ip=10.0.0.1\n",
		TakeoverPath:           "[Service]\nExecStart=\nExecStart=/earlier/playlet\n",
	}
	const variables = "$KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS"
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files     map[string]string
		start     string
		args      []string
		complaint string
	}{
		"kubeadm": {kubeadm, "/opt/playlet " + variables, append(kubeadmArgs, "--node-ip=10.0.0.1"), ""},
		"plain":   {map[string]string{unitFile: plain}, "/opt/playlet", nil, ""},
		"prefix":  {map[string]string{unitFile: "[Service]\nExecStart=-/opt/bin/kubelet --v=2\n"}, "/opt/playlet --v=2", []string{"--v=2"}, ""},
		"continued lines": {map[string]string{unitFile: "[Service]\nExecStart=/usr/bin/kubelet \\\n  --v=2 \\\n# more\n  --max-pods=9\n"},
			"/opt/playlet --v=2    --max-pods=9", []string{"--v=2", "--max-pods=9"}, ""},
		"a program alone in its line": {map[string]string{unitFile: "[Service]\nExecStart=/usr/bin/kubelet\\\n --v=2\n"},
			"/opt/playlet --v=2", []string{"--v=2"}, ""},
		"references": {map[string]string{unitFile: "[Service]\nEnvironment=A=1\nEnvironment=\nEnvironment=IP=10.0.0.1 \"L=--node-labels='a=b'\"\n" +
			"ExecStart=/usr/bin/kubelet --node-ip=${IP} --hostname-override=%H ${A} $L\n"},
			"/opt/playlet --node-ip=${IP} --hostname-override=%H ${A} $L",
			[]string{"--node-ip=10.0.0.1", "--hostname-override=" + host, "", "--node-labels=a=b"}, ""},
		"none":  {nil, "", nil, "kubelet.service: file does not exist"},
		"other": {map[string]string{unitFile: "[Service]\nExecStart=/usr/bin/k3s agent\n"}, "", nil, `starts "/usr/bin/k3s", which is no kubelet`},
		"ours": {map[string]string{unitFile: plain, "/usr/bin/kubelet": "->/etc/alternatives/kubelet",
			"/etc/alternatives/kubelet": "->/usr/bin/playlet"}, "", nil, "runs playlet already"},
	} {
		text, args, err := Takeover(write(t, c.files), "/opt/playlet")
		if c.complaint != "" {
			if err == nil || !strings.Contains(err.Error(), c.complaint) {
				t.Errorf("%s: got the error %v, want %q", name, err, c.complaint)
			}
			continue
		}
		if err != nil || !slices.Equal(args, c.args) || !strings.Contains(text, "\nExecStart=\nExecStart="+c.start+"\n") ||
			!strings.Contains(text, "\nKillMode=process\n") {
			t.Errorf("%s: got %q, %v of\n%s", name, args, err, text)
		}
	}
}
