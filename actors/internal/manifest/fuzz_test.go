package manifest_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
)

// FuzzLoad checks the properties for any bytes: no panic, pods that pass every check, problems with a line of the file, and the
// same result each time.
func FuzzLoad(f *testing.F) {
	for _, data := range base(f) {
		f.Add(data)
	}
	paths, err := filepath.Glob("testdata/uid/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("a: &a {<<: *a}\nb: &b [*b]\n<<: [*a, *b]\n"))
	f.Add([]byte("apiVersion: v1\nkind: Pod\nx: &x {<<: [{<<: {y: 1}}]}\nspec: {<<: *x}\n"))
	options := manifest.Options{NodeName: "node", Source: manifest.FileSource, Now: time.Unix(0, 0)}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		pods, problems := manifest.Load("f", data, options)
		again, problemsAgain := manifest.Load("f", data, options)
		if !bytes.Equal(data, before) || !reflect.DeepEqual(pods, again) || !reflect.DeepEqual(problems, problemsAgain) {
			t.Fatal("not the same twice, or the data was changed")
		}
		for _, pod := range pods {
			errs := append(append(podspec.Validate(pod), podspec.ValidateStatic(pod, podspec.ObjectSources{})...),
				podspec.Unsupported(pod)...)
			if len(errs) > 0 || pod.UID == "" {
				t.Fatalf("a pod that cannot run: %v", errs)
			}
		}
		lines := 1 + bytes.Count(data, []byte("\n"))
		for _, problem := range problems {
			if problem.Line < 1 || problem.Line > lines || problem.Message == "" {
				t.Fatalf("the file has %d lines: %+v", lines, problem)
			}
		}
	})
}
