package suite

import (
	"errors"
	"io"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// registryFolder returns the files from which agnhost's registry server serves an image: each manifest and blob under its digest,
// and the tag, which names the digest of the index.
func registryFolder(name, tag string, index v1.ImageIndex) ([]entry, error) {
	dir := "var/registry/" + name
	var entries []entry
	keep := func(kind string, digest v1.Hash, data []byte) {
		entries = append(entries, entry{name: path.Join(dir, kind, digest.Algorithm, digest.Hex[:2], digest.Hex, "data"), mode: 0o644,
			data: data})
	}
	digest, err := index.Digest()
	if err != nil {
		return nil, err
	}
	raw, err := index.RawManifest()
	if err != nil {
		return nil, err
	}
	keep("manifests", digest, raw)
	entries = append(entries, entry{name: path.Join(dir, "manifests", tag), mode: 0o644, data: []byte(digest.String())})
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, m := range list.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			return nil, err
		}
		manifest, err := image.RawManifest()
		if err != nil {
			return nil, err
		}
		keep("manifests", m.Digest, manifest)
		config, err := image.RawConfigFile()
		if err != nil {
			return nil, err
		}
		id, err := image.ConfigName()
		if err != nil {
			return nil, err
		}
		keep("blobs", id, config)
		layers, err := image.Layers()
		if err != nil {
			return nil, err
		}
		for _, l := range layers {
			of, err := l.Digest()
			if err != nil {
				return nil, err
			}
			content, err := l.Compressed()
			if err != nil {
				return nil, err
			}
			data, err := io.ReadAll(content)
			if err = errors.Join(err, content.Close()); err != nil {
				return nil, err
			}
			keep("blobs", of, data)
		}
	}
	return entries, nil
}
