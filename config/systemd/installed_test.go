package systemd

import (
	"os"
	"path/filepath"
	"slices"
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
	} {
		root := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args, from, err := Installed(root)
		if err != nil || !slices.Equal(args, c.want) || from != c.from {
			t.Errorf("%s: got %q of %q, %v, want %q of %q", name, args, from, err, c.want, c.from)
		}
	}
}
