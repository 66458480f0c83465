//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// Five hundred malformed manifests beside two good ones: the good ones run, also where they come last, none of the others
// does, and each is named with its line.
func TestFiveHundredMalformedManifests(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		const n = 500
		a, err := s.NewAgent()
		must(t, err)
		generate := exec.Command("go", "test", "-count=1", "-run=^TestWriteMalformedManifests$",
			"github.com/playlet-dev/playlet/actors/internal/manifest")
		generate.Env = append(os.Environ(), "MALFORMED_DIR="+a.ManifestDir, "MALFORMED_COUNT="+fmt.Sprint(n))
		out, err := generate.CombinedOutput()
		if err != nil {
			t.Fatalf("making the manifests: %v\n%s", err, out)
		}
		bad, err := os.ReadDir(a.ManifestDir)
		must(t, err)
		if len(bad) != n {
			t.Fatalf("%d manifests", len(bad))
		}
		must(t, a.Write("00-good.yaml", manifest(s, "good", sleeper)))
		must(t, a.Write("zz-good.yaml", manifest(s, "last", sleeper)))
		must(t, a.Start())
		up(t, s, "good", "c")
		up(t, s, "last", "c")
		settled(t, a)
		lines := map[string]int{}
		await(t, func() error {
			now, err := a.Snapshot(t.Context())
			if err != nil {
				return err
			}
			for _, p := range now.Problems {
				lines[filepath.Base(p.Path)] = p.Line
			}
			if len(lines) < n {
				err = fmt.Errorf("problems of %d manifests", len(lines))
			}
			return err
		})
		log := a.Log()
		for _, file := range bad {
			if lines[file.Name()] < 1 {
				t.Errorf("%s is reported without a line", file.Name())
			}
			if !strings.Contains(log, file.Name()) {
				t.Errorf("the log does not name %s", file.Name())
			}
		}
		if now := running(t, s, 2); len(now) != 2 {
			t.Errorf("running: %v", now)
		}
		all, err := s.Containers(t.Context())
		must(t, err)
		if len(all) != 2 {
			t.Errorf("%d containers", len(all))
		}
		for _, file := range bad {
			must(t, a.Remove(file.Name()))
		}
		await(t, func() error {
			now, err := a.Snapshot(t.Context())
			if err == nil && len(now.Problems) > 0 {
				err = fmt.Errorf("%d problems", len(now.Problems))
			}
			return err
		})
		running(t, s, 2)
	})
}

// A field that is not honoured is refused by name, with file and line, and nothing of the pod runs.
func TestWhatIsNotHonouredIsRefusedByName(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := s.Agent(t)
	for i, c := range []struct{ spec, field string }{
		{"containers: [{name: c, image: HELLO, volumeDevices: [{name: a, devicePath: /b}]}]", "spec.containers[0].volumeDevices"},
		{"containers: [{name: c, image: HELLO, envFrom: [{configMapRef: {name: x}}]}]", "spec.containers[0].envFrom"},
		{"containers: [{name: c, image: HELLO}]\nvolumes: [{name: v, configMap: {name: x}}]", "spec.volumes[0].configMap"},
		{"containers: [{name: c, image: HELLO}]\nruntimeClassName: other", "spec.runtimeClassName"},
		{"containers: [{name: c, image: HELLO, volumeMounts: [{name: v, mountPath: /x, bindMountOptions: [noexec]}]}]\nvolumes: [{name: v, emptyDir: {}}]", "spec.containers[0].volumeMounts[0].bindMountOptions"},
		{"containers: [{name: c, image: HELLO, volumeMounts: [{name: missing, mountPath: /x}]}]",
			"spec.containers[0].volumeMounts[0].name"},
		{"containers: [{name: c, image: HELLO, ports: [{containerPort: 70000}]}]", "spec.containers[0].ports[0].containerPort"},
	} {
		name := fmt.Sprint("p", i)
		must(t, a.Write(name+".yaml", manifest(s, name, c.spec)))
		p := awaitProblem(t, a, name+".yaml", c.field)
		if p.Line < 5 {
			t.Errorf("%s is reported for line %d", c.field, p.Line)
		}
		awaitLogged(t, a, name+".yaml", c.field)
	}
	settled(t, a)
	all, err := s.Containers(t.Context())
	must(t, err)
	if now, err := a.Snapshot(t.Context()); err != nil || len(now.Pods) > 0 || len(all) > 0 {
		t.Errorf("there are pods %+v, containers %v; %v", now.Pods, all, err)
	}
}
