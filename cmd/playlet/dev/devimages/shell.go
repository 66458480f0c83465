package devimages

import (
	"archive/tar"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// HelloWithShell is the image hello for the architecture of this machine alone, with a shell and usual commands: busybox, a
// static program of this architecture, is /bin/busybox there, and each of its applets a link to it in /bin, which is in $PATH.
func HelloWithShell(busybox []byte, applets []string) (v1.Image, error) {
	img, err := imageFor(Hello, runtime.GOARCH, []func(*v1.Config){func(c *v1.Config) { c.Env = []string{"PATH=/:/bin"} }})
	if err != nil {
		return nil, err
	}
	entries := []entry{{"bin/", tar.TypeDir, 0o755, nil}, {"bin/busybox", tar.TypeReg, 0o755, busybox}}
	for _, name := range applets {
		if name != "busybox" {
			entries = append(entries, entry{"bin/" + name, tar.TypeSymlink, 0o777, []byte("busybox")})
		}
	}
	layer, err := archive(entries)
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{
		Layer:   static.NewLayer(layer, types.OCIUncompressedLayer),
		History: v1.History{CreatedBy: "playlet shell"},
	})
}
