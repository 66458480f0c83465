package devimages

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startRegistry(t *testing.T) *Registry {
	r, err := StartRegistry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func ask(t *testing.T, method, url string) (int, http.Header, string) {
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, req)
}

func send(t *testing.T, req *http.Request) (int, http.Header, string) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer resp.Body.Close() //nolint:errcheck // read to the end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// A pull, step by step: tag to index, index to manifest, manifest to configuration and layer.
func TestRegistryServesBothImages(t *testing.T) {
	r := startRegistry(t)
	for _, program := range []Program{Pause, Hello} {
		base := "http://" + r.Addr + "/v2/" + string(program)
		status, head, _ := ask(t, http.MethodHead, base+"/manifests/"+Tag)
		if status != 200 || head.Get("Content-Type") != string(types.OCIImageIndex) {
			t.Fatalf("%s: %d %v", program, status, head)
		}
		_, _, body := ask(t, http.MethodGet, base+"/manifests/"+head.Get("Docker-Content-Digest"))
		index, err := v1.ParseIndexManifest(strings.NewReader(body))
		if err != nil || len(index.Manifests) != len(Architectures) {
			t.Fatalf("%s: %v: %s", program, err, body)
		}
		for i, arch := range Architectures {
			if got := index.Manifests[i].Platform; got.OS != "linux" || got.Architecture != arch {
				t.Errorf("%s: platform %v, want linux/%s", program, got, arch)
			}
			_, _, body := ask(t, http.MethodGet, base+"/manifests/"+index.Manifests[i].Digest.String())
			manifest, err := v1.ParseManifest(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			_, _, body = ask(t, http.MethodGet, base+"/blobs/"+manifest.Config.Digest.String())
			config, err := v1.ParseConfigFile(strings.NewReader(body))
			if err != nil || config.Architecture != arch || config.Config.Entrypoint[0] != "/"+string(program) {
				t.Errorf("%s: %v: %s", program, err, body)
			}
			_, _, layer := ask(t, http.MethodGet, base+"/blobs/"+manifest.Layers[0].Digest.String())
			elf, err := Binary(program, arch)
			if err != nil || !strings.Contains(layer, string(elf)) {
				t.Errorf("%s for %s: the layer does not hold the program (%v)", program, arch, err)
			}
		}
	}
	if got, want := r.BlobReads("hello"), 2*len(Architectures); got != want {
		t.Errorf("%d blobs of hello read, want %d", got, want)
	}
}

// tar knows best whether the layer is one.
func TestLayerUnpacks(t *testing.T) {
	layer, err := rootFS(Hello, runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("tar", "tvf", "-")
	cmd.Stdin = strings.NewReader(string(layer))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"drwxrwxrwt", "-rwxr-xr-x", " hello\n", " etc/passwd\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestImagesAreReproducibleAndEditable(t *testing.T) {
	digest := func(edits ...func(*v1.Config)) string {
		index, err := Image(Hello, edits...)
		if err != nil {
			t.Fatal(err)
		}
		hash, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return hash.String()
	}
	label := func(value string) func(*v1.Config) {
		return func(c *v1.Config) { c.Labels["v"] = value }
	}
	if first, second := digest(), digest(); first != second {
		t.Error("the same image has two digests")
	}
	if digest(label("1")) == digest(label("2")) || digest() == digest(label("1")) {
		t.Error("different images have the same digest")
	}
}

func TestPushUnderOtherNamesAndReplace(t *testing.T) {
	r := startRegistry(t)
	digests := map[string]bool{}
	for _, user := range []string{"0", "65534"} {
		index, err := Image(Hello, func(c *v1.Config) { c.User = user })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Push("some/where:v2", index); err != nil {
			t.Fatal(err)
		}
		status, head, _ := ask(t, http.MethodHead, "http://"+r.Addr+"/v2/some/where/manifests/v2")
		if status != 200 {
			t.Fatalf("status %d", status)
		}
		digests[head.Get("Docker-Content-Digest")] = true
	}
	if len(digests) != 2 {
		t.Errorf("a replaced tag still means the old image: %v", digests)
	}
	if got := r.Ref("some/where:v2"); got != r.Addr+"/some/where:v2" {
		t.Error(got)
	}
	if got := r.Ref("hello"); got != r.Addr+"/hello:"+Tag {
		t.Error(got)
	}
	if err := r.Push("x", notAnImage{}); err == nil {
		t.Error("something that is no image was stored")
	}
}

type notAnImage struct{ Manifest }

func TestFaults(t *testing.T) {
	r := startRegistry(t)
	url := "http://" + r.Addr + "/v2/hello/manifests/" + Tag
	gate := make(chan struct{})
	cases := []struct {
		name  string
		fault Fault
		want  int
	}{
		{"none", Fault{}, 200},
		{"status", Fault{Status: 503}, 503},
		{"delay", Fault{Delay: time.Millisecond}, 200},
		{"cut", Fault{Cut: true}, 0},
	}
	for _, c := range cases {
		r.Forget()
		r.Intercept(func(*http.Request) Fault { return c.fault })
		if status, _, body := ask(t, http.MethodHead, url); status != c.want {
			t.Errorf("%s: status %d, want %d: %s", c.name, status, c.want, body)
		}
		if c.want != 0 && r.Pulls("hello") != 1 {
			t.Errorf("%s: %d pulls counted: %v", c.name, r.Pulls("hello"), r.Requests())
		}
	}

	// Held requests come through once the gate opens, and not before.
	r.Forget()
	arrived := make(chan struct{}, 3)
	r.Intercept(func(*http.Request) Fault { arrived <- struct{}{}; return Fault{Until: gate} })
	var asking sync.WaitGroup
	for range 3 {
		asking.Go(func() {
			if status, _, body := ask(t, http.MethodHead, url); status != 200 {
				t.Errorf("held: status %d: %s", status, body)
			}
		})
	}
	for range 3 {
		<-arrived
	}
	if n := r.Pulls("hello"); n != 0 {
		t.Errorf("%d requests were answered before the gate opened", n)
	}
	close(gate)
	asking.Wait()
	if n := r.Pulls("hello"); n != 3 {
		t.Errorf("%d requests answered, want 3", n)
	}
}

func TestProtect(t *testing.T) {
	r := startRegistry(t)
	r.Protect("ann", "secret")
	for _, c := range []struct {
		user, password string
		want           int
	}{{"", "", 401}, {"ann", "wrong", 401}, {"bob", "secret", 401}, {"ann", "secret", 200}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, "http://"+r.Addr+"/v2/hello/manifests/"+Tag, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.user != "" {
			req.SetBasicAuth(c.user, c.password)
		}
		status, head, _ := send(t, req)
		if status != c.want || (status == 401) != (head.Get("WWW-Authenticate") != "") {
			t.Errorf("%s/%s: %d %v, want %d", c.user, c.password, status, head, c.want)
		}
	}
}

func TestCloseReleasesHeldRequestsAndThePort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := StartRegistry(ctx)
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan struct{})
	r.Intercept(func(*http.Request) Fault { close(arrived); return Fault{Until: make(chan struct{})} })
	result := make(chan int)
	go func() {
		status, _, _ := ask(t, http.MethodGet, "http://"+r.Addr+"/v2/")
		result <- status
	}()
	<-arrived
	cancel()
	if status := <-result; status != 0 {
		t.Errorf("a held request was answered with %d", status)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	again, err := StartRegistryOn(t.Context(), r.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
