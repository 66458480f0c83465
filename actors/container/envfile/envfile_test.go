package envfile

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestValues(t *testing.T) {
	for _, test := range []struct{ name, text, value, err string }{
		{"plain", "K='v'\n", "v", ""},
		{"the end of the file ends the line", "K='v'", "v", ""},
		{"the first one counts", "K='v'\nK='w'\n", "v", ""},
		{"after others", "# a comment\n\n \t\nA='1'\n  # another\n\tK='v'\n", "v", ""},
		{"literally", `K='$A \n "x" = #'`, `$A \n "x" = #`, ""},
		{"several lines", "A='1\nK=2\n'\nK='v\n\nw '\n", "v\n\nw ", ""},
		{"a comment behind it", "K='v' # 'x'\n", "v", ""},
		{"lines as on Windows", "A='1'\r\n\r\nK='v\r\nw'\r\n", "v\nw", ""},
		{"empty", "K=''\n", "", ""},
		{"a blank behind =", "K= 'v'\nK='w'\n", "", ""},
		{"not there", "A='1'\nKK='v'\n", "", ""},
		{"nothing at all", "", "", ""},
		{"what comes later is not looked at", "K='v'\nnonsense\n", "v", ""},
		{"no =", "A='1'\n\nnonsense\nK='v'\n", "", "line 3: it has no ="},
		{"no name", "='v'\n", "", "line 1: there is no name"},
		{"a blank before =", "A ='1'\n", "", "line 1: there is a blank before ="},
		{"no quote", "A='1\n2\n'\nK=v\n", "", "line 4: the value is not in single quotes"},
		{"no value at all", "K=\n", "", "line 1: the value is not in single quotes"},
		{"other quotes", `K="v"`, "", "line 1: the value is not in single quotes"},
		{"an open quote", "A='1'\nK='v\n\n", "", "line 2: the quote is not closed"},
		{"more behind the quote", "K='v'w\n", "", "line 1: there is more"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := value(test.text, "K")
			if got != test.value || (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("it is %q, %v; want %q, %q", got, err, test.value, test.err)
			}
		})
	}
}

// TestFiles checks that Read opens regular files inside the volume, and nothing else.
func TestFiles(t *testing.T) {
	volume, outside := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(volume, "file"):     "K='v'",
		filepath.Join(outside, "file"):    "K='secret'",
		filepath.Join(volume, "large"):    "#" + strings.Repeat("x", MaxBytes) + "\nK='v'",
		filepath.Join(volume, "sub/file"): "K='w'",
		filepath.Join(volume, "nonsense"): "secret",
	} {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	must(t, os.Symlink("sub/file", filepath.Join(volume, "in")))
	must(t, os.Symlink(filepath.Join(outside, "file"), filepath.Join(volume, "out")))
	must(t, os.Symlink("../"+filepath.Base(outside)+"/file", filepath.Join(volume, "up")))
	must(t, syscall.Mkfifo(filepath.Join(volume, "pipe"), 0o600))
	for _, test := range []struct{ path, value, err string }{
		{"file", "v", ""},
		{"sub/file", "w", ""},
		{"in", "w", ""},
		{"/sub/file", "w", ""},
		{"/", "", "not a plain relative path"},
		{"nothing", "", ""},
		{"sub/nothing", "", ""},
		{"out", "", "leads out"},
		{"up", "", "leads out"},
		{"pipe", "", "no regular file"},
		{"sub", "", "no regular file"},
		{"large", "", "more than " + strconv.Itoa(MaxBytes)},
		{"nonsense", "", "line 1"},
		{"../file", "", "not a plain relative path"},
	} {
		t.Run(test.path, func(t *testing.T) {
			got, err := Read(volume, test.path, "K")
			if got != test.value || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("it is %q, %v; want %q, %q", got, err, test.value, test.err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells what the file says: %v", err)
			}
		})
	}
	if _, err := Read(filepath.Join(volume, "gone"), "file", "K"); err == nil {
		t.Error("a volume that is not there is no error")
	}
}

func FuzzValue(f *testing.F) {
	for _, text := range []string{"K='v'", "A='1\n2' # c\n K='v\r\n'\n", "K= x", "='", "K='"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := value(text, "K")
		if err != nil && got != "" {
			t.Errorf("both %q and %v", got, err)
		}
		if strings.ContainsRune(got, '\'') {
			t.Errorf("a quote in %q", got)
		}
		if err == nil && got != "" && !strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), "K='"+got+"'") {
			t.Errorf("%q is nowhere", got)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
