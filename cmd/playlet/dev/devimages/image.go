package devimages

import (
	"archive/tar"
	"bytes"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image returns an OCI index of one image per architecture. The same arguments give the same digest on every machine.
//
// The root file system has the program as /<name>, an empty /tmp, and /etc/passwd and /etc/group with root (0) and nobody
// (65534). The entry point is the program without arguments. Each of edits may change the configuration, once per architecture:
// a unique label gives an image with a unique digest.
func Image(program Program, edits ...func(*v1.Config)) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range Architectures {
		img, err := imageFor(program, arch, edits)
		if err != nil {
			return nil, fmt.Errorf("image %s for linux/%s: %w", program, arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return index, nil
}

func imageFor(program Program, arch string, edits []func(*v1.Config)) (v1.Image, error) {
	root, err := rootFS(program, arch)
	if err != nil {
		return nil, err
	}
	// Uncompressed: a few kilobytes are not worth unpacking.
	img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer:   static.NewLayer(root, types.OCIUncompressedLayer),
		History: v1.History{CreatedBy: "playlet " + string(program)},
	})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", arch
	file.Config = v1.Config{
		Entrypoint: []string{"/" + string(program)},
		Env:        []string{"PATH=/"},
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "playlet " + string(program),
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	if program == Hello {
		file.Config.ExposedPorts = map[string]struct{}{"8080/tcp": {}}
	}
	for _, edit := range edits {
		edit(&file.Config)
	}
	img, err = mutate.ConfigFile(img, file)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigMediaType(img, types.OCIConfigJSON), nil
}

// rootFS gives the image's one layer as an uncompressed tar.
func rootFS(program Program, arch string) ([]byte, error) {
	elf, err := Binary(program, arch)
	if err != nil {
		return nil, err
	}
	return archive([]entry{
		{"etc/", tar.TypeDir, 0o755, nil},
		{"etc/group", tar.TypeReg, 0o644, []byte("root:x:0:\nnobody:x:65534:\n")},
		{"etc/passwd", tar.TypeReg, 0o644, []byte("root:x:0:0:root:/:\nnobody:x:65534:65534:nobody:/:\n")},
		{"tmp/", tar.TypeDir, 0o1777, nil},
		{string(program), tar.TypeReg, 0o755, elf},
	})
}

// entry is a file of an image. The data of a link is where it leads to.
type entry struct {
	name string
	kind byte
	mode int64
	data []byte
}

// archive is an uncompressed tar.
func archive(entries []entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		head := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: e.mode, Size: int64(len(e.data))}
		if e.kind == tar.TypeSymlink {
			head.Linkname, head.Size, e.data = string(e.data), 0, nil
		}
		if err := w.WriteHeader(head); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
