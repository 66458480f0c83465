package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

type state struct {
	Name  string
	Count map[string]int
	Deep  []struct{ A, B string }
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	rapid.Check(t, func(rt *rapid.T) {
		want := state{Name: rapid.String().Draw(rt, "name"), Count: map[string]int{}}
		for _, k := range rapid.SliceOfN(rapid.StringMatching(`[a-z<>&" ]{1,5}`), 1, 5).Draw(rt, "keys") {
			want.Count[k] = rapid.Int().Draw(rt, "count")
		}
		version := rapid.IntRange(0, 9).Draw(rt, "version")
		if err := Save(path, version, want); err != nil {
			rt.Fatal(err)
		}
		var got state
		if err := Load(path, version, &got); err != nil {
			rt.Fatal(err)
		}
		// JSON cannot contain invalid UTF-8: the encoder replaces it.
		want.Name = strings.ToValidUTF8(want.Name, "\ufffd")
		if !reflect.DeepEqual(got, want) {
			rt.Fatalf("got %#v, want %#v", got, want)
		}
	})
}

func TestLoadOfNothing(t *testing.T) {
	got := state{Name: "untouched"}
	err := Load(filepath.Join(t.TempDir(), "state"), 1, &got)
	var unreadable *UnreadableError
	if !errors.Is(err, fs.ErrNotExist) || errors.As(err, &unreadable) || got.Name != "untouched" {
		t.Errorf("got %v, %v", err, got)
	}
}

func TestLoadKeepsAsideWhatItCannotRead(t *testing.T) {
	good := func(t *testing.T) string {
		path := filepath.Join(t.TempDir(), "good")
		must(t, Save(path, 1, state{Name: "x", Count: map[string]int{"a": 1}}))
		return content(t, path)
	}(t)
	for name, text := range map[string]string{
		"empty":             "",
		"half":              good[:len(good)/2],
		"zeroes":            strings.Repeat("\x00", len(good)),
		"no checkpoint":     "hello",
		"null":              "null",
		"no value":          `{"version":1}`,
		"a flipped bit":     strings.Replace(good, `"a":1`, `"a":3`, 1),
		"another version":   strings.Replace(good, `"version":1`, `"version":2`, 1),
		"something after":   good + good,
		"of another shape":  `{"version":1,"sha256":"` + sum([]byte(`{"Name":1}`)) + `","value":{"Name":1}}`,
		"of a bigger shape": strings.Replace(good, `{"Name"`, `{"Other":1,"Name"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			must(t, os.WriteFile(path, []byte(text), 0o600))
			got := state{Name: "untouched"}
			err := Load(path, 1, &got)
			var unreadable *UnreadableError
			if !errors.As(err, &unreadable) {
				t.Fatalf("got %v, want an UnreadableError", err)
			}
			if got.Name != "untouched" || got.Count != nil {
				t.Errorf("the value was touched: %+v", got)
			}
			if unreadable.KeptAs != path+".corrupt" || content(t, unreadable.KeptAs) != text {
				t.Errorf("kept as %q", unreadable.KeptAs)
			}
			must(t, Save(path, 1, state{Name: "rebuilt"}))
			if err := Load(path, 1, &got); err != nil || got.Name != "rebuilt" {
				t.Errorf("after rebuilding: %v, %v", got, err)
			}
		})
	}
}

func TestLoadNamesVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	must(t, Save(path, 3, "x"))
	var got string
	err := Load(path, 2, &got)
	if err == nil || !strings.Contains(err.Error(), "it has version 3, and this agent reads version 2") {
		t.Errorf("got %v", err)
	}
}

func TestLoadOfAFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	must(t, os.MkdirAll(filepath.Join(path, "x"), 0o755))
	var got string
	var unreadable *UnreadableError
	if err := Load(path, 1, &got); !errors.As(err, &unreadable) || unreadable.KeptAs == "" {
		t.Errorf("got %v", err)
	}
	must(t, Save(path, 1, "rebuilt"))
}

// A file that may be readable later is left in place.
func TestLoadOfWhatCannotBeReadNow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	must(t, os.Symlink(path, path)) // a loop: opening it fails, also for root
	var got string
	var unreadable *UnreadableError
	err := Load(path, 1, &got)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.As(err, &unreadable) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if left := names(t, filepath.Dir(path)); len(left) != 1 || left[0] != "state" {
		t.Errorf("there is left %q", left)
	}
}

func TestLoadIntoNoPointer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	must(t, Save(path, 1, "x"))
	if err := Load(path, 1, "x"); err == nil {
		t.Error("no error")
	}
	if err := Load(path, 1, (*string)(nil)); err == nil {
		t.Error("no error")
	}
	if got := names(t, filepath.Dir(path)); len(got) != 1 || got[0] != "state" {
		t.Errorf("a caller's mistake moved the file: %q", got)
	}
}

func TestSaveOfWhatIsNotJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	must(t, Save(path, 1, "old"))
	if err := Save(path, 1, func() {}); err == nil {
		t.Error("no error")
	}
	var got string
	if err := Load(path, 1, &got); err != nil || got != "old" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestTheNewestIsKeptAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	for _, text := range []string{"a", "b", "c"} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		var got state
		var unreadable *UnreadableError
		if err := Load(path, 1, &got); !errors.As(err, &unreadable) || content(t, unreadable.KeptAs) != text {
			t.Fatalf("got %v", err)
		}
	}
	if got := names(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("kept %q", got)
	}
}

// FuzzLoad checks that Load, for any file, returns a value that survives Save and Load, or reports the file as unreadable and
// moves it aside.
func FuzzLoad(f *testing.F) {
	dir := f.TempDir()
	if err := Save(filepath.Join(dir, "seed"), 1, state{Name: "x", Count: map[string]int{"a": 1}}); err != nil {
		f.Fatal(err)
	}
	seed, err := os.ReadFile(filepath.Join(dir, "seed"))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range [][]byte{seed, seed[:20], nil, []byte("null"), []byte("{}"), []byte(`{"version":1,"value":{}}`)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "state")
		must(t, os.WriteFile(path, data, 0o600))
		var got state
		err := Load(path, 1, &got)
		var unreadable *UnreadableError
		switch {
		case err == nil:
			var again state
			must(t, Save(path, 1, got))
			must(t, Load(path, 1, &again))
			if !reflect.DeepEqual(got, again) {
				t.Errorf("%+v became %+v", got, again)
			}
		case !errors.As(err, &unreadable) || unreadable.KeptAs == "":
			t.Errorf("got %v", err)
		default:
			if content(t, unreadable.KeptAs) != string(data) {
				t.Error("what was kept is not what was there")
			}
		}
	})
}

// SaveVolatile does not wait for the disk.
func TestAVolatileCheckpointIsNotSynced(t *testing.T) {
	syncs, file, dir := 0, syncFile, syncDir
	defer func() { syncFile, syncDir = file, dir }()
	syncFile = func(*os.File) error { syncs++; return nil }
	syncDir = func(string) error { syncs++; return nil }
	for name, want := range map[string]int{"volatile": 0, "durable": 2} {
		syncs = 0
		path, save := filepath.Join(t.TempDir(), "c.json"), SaveVolatile
		if name == "durable" {
			save = Save
		}
		if err := save(path, 1, "x"); err != nil || syncs != want {
			t.Errorf("%s: %v, %d syncs", name, err, syncs)
		}
		var got string
		if err := Load(path, 1, &got); err != nil || got != "x" {
			t.Errorf("%s: it reads %q, %v", name, got, err)
		}
	}
}

// After a rollback and the next upgrade, the newer version restores its checkpoint, unless the older version has written
// another.
func TestReadBack(t *testing.T) {
	for name, c := range map[string]struct {
		since func(path string) error
		want  bool
	}{
		"nothing newer":   {func(string) error { return nil }, true},
		"a newer one":     {func(path string) error { return Save(path, 1, state{Name: "v1"}) }, false},
		"damaged":         {func(path string) error { return os.WriteFile(path+AsideSuffix, []byte("{"), 0o600) }, false},
		"another version": {func(path string) error { return Save(path+AsideSuffix, 3, state{}) }, false},
		"nothing":         {func(path string) error { return os.Remove(path + AsideSuffix) }, false},
	} {
		path := filepath.Join(t.TempDir(), "state")
		must(t, Save(path, 2, state{Name: "v2"}))
		var got state
		var unreadable *UnreadableError
		if err := Load(path, 1, &got); !errors.As(err, &unreadable) {
			t.Fatalf("%s: the older version got %v", name, err)
		}
		must(t, c.since(path))
		back, err := ReadBack(path, 2)
		if back != c.want || err != nil {
			t.Errorf("%s: got %t, %v, want %t", name, back, err, c.want)
		}
		if err := Load(path, 2, &got); c.want && (err != nil || got.Name != "v2") {
			t.Errorf("%s: the newer version reads %+v, %v", name, got, err)
		}
	}
}

// A folder, or a folder's remains, in the way of an unreadable checkpoint does not keep it from being moved aside.
func TestLoad_AsideOfAFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	var s state
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "first", "second"} { // the folder, then files
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		unreadable, ok := errors.AsType[*UnreadableError](Load(path, 1, &s))
		if !ok || unreadable.KeptAs != path+AsideSuffix {
			t.Fatalf("%q: %+v", text, unreadable)
		}
		if text != "" && content(t, unreadable.KeptAs) != text {
			t.Errorf("kept is %q, want %q", content(t, unreadable.KeptAs), text)
		}
	}
	if _, err := os.Stat(path + AsideSuffix + ".1/full"); err != nil {
		t.Errorf("the folder is not kept: %v", err)
	}
}
