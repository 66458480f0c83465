package provider

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"

// entry returns the configuration of a provider with this name and more fields.
func entry(name, more string) string {
	return fmt.Sprintf("- {name: %s, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: ['*.io', 'r.io:5000/team'], "+
		"defaultCacheDuration: 1h%s}\n", name, more)
}

// rig has a folder with plugins. These are shell scripts that record their runs in the file runs.
type rig struct {
	dir string
	log bytes.Buffer
}

func newRig(t *testing.T, scripts map[string]string) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir()}
	for name, script := range scripts {
		must(t, os.WriteFile(filepath.Join(r.dir, name), []byte("#!/bin/sh\necho "+name+" \"$@\" >> "+r.dir+"/runs\n"+script), 0o700))
	}
	return r
}

func (r *rig) load(t *testing.T, config string) (*Providers, error) {
	t.Helper()
	file := filepath.Join(r.dir, "config.yaml")
	must(t, os.WriteFile(file, []byte(config), 0o600))
	return Load(file, r.dir, true, slog.New(slog.NewTextHandler(&r.log, nil)))
}

func (r *rig) runs(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, "runs"))
	if err != nil {
		return 0
	}
	return strings.Count(string(data), "\n")
}

// answer returns a script that answers with this cache key type and more fields.
func answer(kind, more string) string {
	return `cat > ` + "$(dirname $0)/request\n" +
		`echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"` + kind + `"` + more +
		`,"auth":{"*.io":{"username":"'$USER_OF_IT'","password":"hunter2"},"other.example":{"username":"x","password":"y"}}}'` + "\n"
}

func TestPluginsAreAsked(t *testing.T) {
	r := newRig(t, map[string]string{"good": answer("Image", "")})
	p, err := r.load(t, head+entry("good", ", args: [--a, b], env: [{name: USER_OF_IT, value: me}]"))
	must(t, err)
	found, problems := p.Credentials(t.Context(), Question{Repository: "r.io/team/app"})
	if len(found) != 1 || len(problems) != 0 || found[0].Auth().Username != "me" || found[0].Auth().Password != "hunter2" ||
		found[0].From != "credential provider good" || found[0].Secret() {
		t.Fatalf("%v, %v", found, problems)
	}
	request, err := os.ReadFile(filepath.Join(r.dir, "request"))
	must(t, err)
	if want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"r.io/team/app"}`; string(request) != want {
		t.Errorf("asked with %s", request)
	}
	runs, err := os.ReadFile(filepath.Join(r.dir, "runs"))
	must(t, err)
	if string(runs) != "good --a b\n" {
		t.Errorf("run as %s", runs)
	}
	for _, other := range []string{"r.io:5000/other", "a.b.io/x", "docker.example/x"} {
		if found, problems := p.Credentials(t.Context(), Question{Repository: other}); found != nil || problems != nil || r.runs(t) != 1 {
			t.Errorf("%s is none of its images: %v %v", other, found, problems)
		}
	}
	if found, problems := (*Providers)(nil).Credentials(t.Context(), Question{Repository: "r.io/x"}); found != nil || problems != nil {
		t.Error("no providers have credentials")
	}
}

const tokenAttributes = ", tokenAttributes: {serviceAccountTokenAudience: a, requireServiceAccount: true, cacheType: Token}"

// As in the kubelet, configurations of the beta and alpha APIs are accepted, and plugins are asked in their own version.
func TestProviders_OlderVersions(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		old := strings.NewReplacer("k8s.io/v1", "k8s.io/"+version)
		r := newRig(t, map[string]string{"good": old.Replace(answer("Image", "")), "newer": answer("Image", "")})
		p, err := r.load(t, old.Replace(head+entry("good", ", env: [{name: USER_OF_IT, value: me}]")))
		must(t, err)
		found, problems := p.Credentials(t.Context(), Question{Repository: "r.io/team/app"})
		if len(found) != 1 || len(problems) != 0 || found[0].Auth().Username != "me" {
			t.Fatalf("%s: %v, %v", version, found, problems)
		}
		request, err := os.ReadFile(filepath.Join(r.dir, "request"))
		must(t, err)
		if want := `"apiVersion":"credentialprovider.kubelet.k8s.io/` + version + `"`; !strings.Contains(string(request), want) {
			t.Errorf("%s: asked with %s", version, request)
		}
		p, err = r.load(t, old.Replace(head+entry("newer", "")))
		must(t, err)
		if found, problems = p.Credentials(t.Context(), Question{Repository: "r.io/team/app"}); len(found) != 0 || len(problems) != 1 {
			t.Errorf("%s: an answer of v1 was taken: %v, %v", version, found, problems)
		}
	}
}

func TestAnswersAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		kind, more string
		want       int // runs for r.io/a twice, r.io/b, s.io/a
	}{
		"image":     {"Image", "", 3},
		"registry":  {"Registry", "", 2},
		"global":    {"Global", "", 1},
		"not":       {"Global", `,"cacheDuration":"0s"`, 4},
		"shortly":   {"Global", `,"cacheDuration":"1ns"`, 4},
		"otherwise": {"Registry", `,"cacheDuration":"1h"`, 2},
	} {
		r := newRig(t, map[string]string{"p": answer(c.kind, c.more)})
		p, err := r.load(t, head+entry("p", ""))
		must(t, err)
		for _, image := range []string{"r.io/a", "r.io/a", "r.io/b", "s.io/a"} {
			if found, problems := p.Credentials(t.Context(), Question{Repository: image}); len(found) != 1 || problems != nil {
				t.Fatalf("%s: %v, %v", name, found, problems)
			}
		}
		if got := r.runs(t); got != c.want {
			t.Errorf("%s: run %d times, want %d", name, got, c.want)
		}
	}
}

// Credentials expire while the machine is suspended, and their durations do not pass.
func TestCredentials_Suspended(t *testing.T) {
	r := newRig(t, map[string]string{"p": answer("Global", "")})
	p, err := r.load(t, head+entry("p", ""))
	must(t, err)
	var asleep []time.Duration // each time that it is read
	p.plugins[0].asleep = func() time.Duration {
		now := asleep[0]
		asleep = append(asleep[1:], now)[:max(1, len(asleep)-1)]
		return now
	}
	for i, c := range []struct {
		asleep []time.Duration
		want   int
	}{
		{[]time.Duration{0}, 1}, {[]time.Duration{0}, 1}, {[]time.Duration{time.Hour}, 2}, {[]time.Duration{time.Hour}, 2},
		// suspended while the plugin runs: the answer is old, and not cached
		{[]time.Duration{2 * time.Hour, 2 * time.Hour, 3 * time.Hour}, 3}, {[]time.Duration{3 * time.Hour}, 4}, {[]time.Duration{3 * time.Hour}, 4},
	} {
		asleep = c.asleep
		if found, problems := p.Credentials(t.Context(), Question{Repository: "r.io/a"}); len(found) != 1 || problems != nil {
			t.Fatalf("%v, %v", found, problems)
		}
		if got := r.runs(t); got != c.want {
			t.Errorf("question %d: run %d times, want %d", i, got, c.want)
		}
	}
}

func TestOneRunForManyWhoAskAtOnce(t *testing.T) {
	r := newRig(t, map[string]string{"slow": "while ! [ -e $(dirname $0)/go ]; do sleep 0.01; done\n" + answer("Image", "")})
	p, err := r.load(t, head+entry("slow", ""))
	must(t, err)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if found, problems := p.Credentials(context.Background(), Question{Repository: "r.io/a"}); len(found) != 1 || problems != nil {
				t.Errorf("%v, %v", found, problems)
			}
		})
	}
	must(t, os.WriteFile(filepath.Join(r.dir, "go"), nil, 0o600))
	all.Wait()
	if got := r.runs(t); got != 1 {
		t.Errorf("run %d times", got)
	}
}

// The error of a failed plugin names it, and contains none of its output. The other plugins are still asked.
func TestPluginsThatFail(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"exit":             {"echo hunter2\necho hunter2 >&2; exit 3\n", "exit status 3"},
		"no answer":        {"exec sleep 1000\n", "no answer within"},
		"a child stays":    {"sleep 1000 &\necho $! > $(dirname $0)/child\nwait\n", "no answer within"},
		"no JSON":          {"echo hunter2\n", "not JSON"},
		"too much":         {"head -c 1100000 /dev/zero\n", "larger than"},
		"another kind":     {"echo '{\"kind\":\"X\",\"password\":\"hunter2\"}'\n", "no CredentialProviderResponse"},
		"another version":  {strings.Replace(answer("Image", ""), "k8s.io/v1", "k8s.io/v1beta1", 1), "no CredentialProviderResponse"},
		"unknown key type": {answer("Planet", ""), "cacheKeyType"},
	} {
		r := newRig(t, map[string]string{"bad": c.script, "good": answer("Global", "")})
		p, err := r.load(t, head+entry("bad", "")+entry("good", ""))
		must(t, err)
		if c.want == "no answer within" {
			p.plugins[0].timeout = 200 * time.Millisecond
		}
		found, problems := p.Credentials(t.Context(), Question{Repository: "r.io/a"})
		if len(found) != 1 || len(problems) != 1 || !strings.Contains(problems[0].Error(), "credential provider bad: ") ||
			!strings.Contains(problems[0].Error(), c.want) {
			t.Errorf("%s: %v, %v", name, found, problems)
		}
		if child, err := os.ReadFile(filepath.Join(r.dir, "child")); err == nil {
			cmdline := filepath.Join("/proc", strings.TrimSpace(string(child)), "cmdline")
			deadline := time.Now().Add(time.Minute)
			for data, err := os.ReadFile(cmdline); err == nil && len(data) > 0; data, err = os.ReadFile(cmdline) {
				if time.Now().After(deadline) {
					t.Fatal("what the plugin started goes on")
				}
				time.Sleep(time.Millisecond)
			}
		}
		if said := fmt.Sprint(problems) + r.log.String(); strings.Contains(said, "hunter2") {
			t.Errorf("%s: it tells: %s", name, said)
		}
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ config, want string }{
		"empty":           {"", "CredentialProviderConfig of kubelet.config.k8s.io/v1 is needed"},
		"unknown version": {strings.Replace(head, "/v1", "/v1beta2", 1) + entry("p", ""), "v1beta2"},
		"tokens of old":   {strings.Replace(head, "/v1", "/v1beta1", 1) + entry("p", tokenAttributes), "v1beta1 has no tokenAttributes"},
		"tokens for old": {head + strings.Replace(entry("p", tokenAttributes), "k8s.io/v1", "k8s.io/v1beta1", 1),
			"tokenAttributes needs the apiVersion credentialprovider.kubelet.k8s.io/v1"},
		"too large":         {strings.Repeat("#", maxConfig+1), "larger than 4194304 bytes"},
		"unknown field":     {head + entry("p", ", colour: red"), "colour"},
		"no providers":      {head, "names no providers"},
		"no such program":   {head + entry("missing", ""), "providers[0] (missing): the plugin cannot be run"},
		"a path":            {head + entry("../p", ""), "name must be"},
		"twice":             {head + entry("p", "") + entry("p", ""), "name is there twice"},
		"no images":         {head + "- {name: p, apiVersion: credentialprovider.kubelet.k8s.io/v1, defaultCacheDuration: 1h}\n", "matchImages is empty"},
		"a bad glob":        {head + strings.Replace(entry("p", ""), "*.io", "[.io", 1), "matchImages[0]: \"[.io\" is no registry"},
		"no duration":       {head + strings.Replace(entry("p", ""), "defaultCacheDuration: 1h", "args: []", 1), "defaultCacheDuration"},
		"negative duration": {head + strings.Replace(entry("p", ""), "1h", "-1h", 1), "defaultCacheDuration"},
		"unknown answers":   {head + strings.Replace(entry("p", ""), "k8s.io/v1", "k8s.io/v2", 1), "credentialprovider.kubelet.k8s.io/v1 is needed"},
	} {
		r := newRig(t, map[string]string{"p": "exit 1\n"})
		if _, err := r.load(t, c.config); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "--image-credential-provider-config: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFolderOfConfigurations(t *testing.T) {
	r := newRig(t, map[string]string{"a": answer("Global", ""), "b": answer("Global", "")})
	folder := filepath.Join(r.dir, "configs")
	must(t, os.Mkdir(folder, 0o700))
	for name, text := range map[string]string{"2.yaml": head + entry("a", ""), "1.json": head + entry("b", ""), "3.txt": "not read"} {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	p, err := Load(folder, r.dir, true, slog.Default())
	must(t, err)
	if len(p.plugins) != 2 || p.plugins[0].name != "b" {
		t.Errorf("%d plugins, first %s", len(p.plugins), p.plugins[0].name)
	}
	if _, err := Load(filepath.Join(r.dir, "missing"), r.dir, true, slog.Default()); err == nil {
		t.Error("a missing file is taken")
	}
}
