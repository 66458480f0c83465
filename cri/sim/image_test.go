package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cri/sim"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (h *harness) pull(ref string, auth *runtimeapi.AuthConfig) (string, error) {
	resp, err := h.img.PullImage(h.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}, Auth: auth})
	return resp.GetImageRef(), err
}

func (h *harness) image(ref string) *runtimeapi.Image {
	h.t.Helper()
	resp, err := h.img.ImageStatus(h.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	h.must(err)
	return resp.Image
}

func TestReferencesAreSpelledOut(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	for ref, want := range map[string]string{
		"nginx":                         "docker.io/library/nginx:latest",
		"nginx:1":                       "docker.io/library/nginx:1",
		"team/app":                      "docker.io/team/app:latest",
		"docker.io/nginx":               "docker.io/library/nginx:latest",
		"localhost/app:x":               "localhost/app:x",
		"127.0.0.1:5000/a/b":            "127.0.0.1:5000/a/b:latest",
		"registry.k8s.io/pause:3.10":    "registry.k8s.io/pause:3.10",
		"example.org/app@" + digest:     "example.org/app@" + digest,
		"example.org/app:tag@" + digest: "example.org/app@" + digest,
	} {
		h := start(t, sim.Options{Preload: []string{}})
		id, err := h.pull(ref, nil)
		h.must(err)
		if got := h.Snapshot().Images; got[0] != want {
			t.Errorf("%q became %v, want %q", ref, got, want)
		}
		for _, name := range []string{ref, want, id} {
			if img := h.image(name); img == nil || img.Id != id {
				t.Errorf("%q pulled is not found as %q: %v", ref, name, img)
			}
		}
	}
}

func TestImageLife(t *testing.T) {
	h := start(t, sim.Options{Preload: []string{"app", "small"}, Images: map[string]sim.Image{
		"app":   {Size: 5000, Pinned: true, Content: "same"},
		"twin":  {Size: 5000, Pinned: true, Content: "same"},
		"small": {Size: 7},
	}})
	_, err := h.pull("twin", nil)
	h.must(err)
	app, small := h.image("app"), h.image("small")
	if app.Id != h.image("twin").Id || len(app.RepoTags) != 2 || len(app.RepoDigests) != 2 {
		t.Errorf("two references of one image: %v", app)
	}
	if app.Size != 5000 || !app.Pinned || small.Pinned {
		t.Errorf("images %v %v", app, small)
	}
	list, err := h.img.ListImages(h.ctx, &runtimeapi.ListImagesRequest{})
	h.must(err)
	fs, err := h.img.ImageFsInfo(h.ctx, &runtimeapi.ImageFsInfoRequest{})
	h.must(err)
	if len(list.Images) != 2 || fs.ImageFilesystems[0].UsedBytes.Value != 5007 {
		t.Errorf("list %v, file system %v", list, fs)
	}
	h.run("web")
	for range 2 {
		_, err = h.img.RemoveImage(h.ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: "twin"}})
		h.must(err)
	}
	if h.image("app") != nil || h.image(app.Id) != nil {
		t.Error("removal by one reference leaves another")
	}
	h.broken("image-in-use")
}

func TestPullTakesItsTime(t *testing.T) {
	h := start(t, sim.Options{Images: map[string]sim.Image{"big": {Takes: time.Minute}}})
	h.slow("PullImage")
	done := background(func() error { _, err := h.pull("big", nil); return err })
	h.must(h.clock.WaitPending(h.ctx, 1))
	h.clock.Advance(time.Second)
	h.must(h.clock.WaitPending(h.ctx, 1))
	h.clock.Advance(time.Minute - time.Nanosecond)
	if h.image("big") != nil {
		t.Error("present too early")
	}
	h.clock.Advance(time.Nanosecond)
	h.must(<-done)
	if h.image("big") == nil {
		t.Error("not present")
	}
}

func TestPullErrors(t *testing.T) {
	h := start(t, sim.Options{Images: map[string]sim.Image{
		"gone": {Err: status.Error(codes.NotFound, "manifest unknown")}, "private": {Username: "u", Password: "p"},
	}})
	_, err := h.pull("gone", nil)
	fails(t, err, codes.NotFound, "manifest unknown")

	_, err = h.pull("private", nil)
	fails(t, err, codes.Unknown, "may require authorization")
	_, err = h.pull("private", &runtimeapi.AuthConfig{Username: "u", Password: "wrong"})
	fails(t, err, codes.Unknown, "may require authorization")
	_, err = h.pull("private", &runtimeapi.AuthConfig{Username: "u", Password: "p"})
	h.must(err)
	_, err = h.pull("", nil)
	fails(t, err, codes.Unknown, "invalid reference format")
}
