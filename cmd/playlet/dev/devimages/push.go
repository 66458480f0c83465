package devimages

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Manifest is an image or an index of images: v1.Image or v1.ImageIndex.
type Manifest interface {
	MediaType() (types.MediaType, error)
	RawManifest() ([]byte, error)
	Digest() (v1.Hash, error)
}

// Push stores an image or an index with all its parts under name (repository[:tag], with Tag as the default). It replaces the
// previous target of the tag. It bypasses Intercept, Protect and the request log.
func (r *Registry) Push(name string, what Manifest) error {
	repo, tag := split(name)
	if err := r.push(repo, tag, what); err != nil {
		return fmt.Errorf("push %s:%s: %w", repo, tag, err)
	}
	return nil
}

// push stores the parts first, since a registry rejects a manifest with missing parts.
func (r *Registry) push(repo, tag string, what Manifest) error {
	switch m := what.(type) {
	case v1.Image:
		if err := r.pushBlobs(repo, m); err != nil {
			return err
		}
	case v1.ImageIndex:
		if err := r.pushChildren(repo, m); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%T is neither an image nor an index", what)
	}
	mediaType, err := what.MediaType()
	if err != nil {
		return err
	}
	raw, err := what.RawManifest()
	if err != nil {
		return err
	}
	return r.put(http.MethodPut, "/v2/"+repo+"/manifests/"+tag, string(mediaType), raw)
}

func (r *Registry) pushChildren(repo string, index v1.ImageIndex) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, child := range manifest.Manifests {
		var part Manifest
		if child.MediaType.IsIndex() {
			part, err = index.ImageIndex(child.Digest)
		} else {
			part, err = index.Image(child.Digest)
		}
		if err != nil {
			return err
		}
		if err := r.push(repo, child.Digest.String(), part); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registry) pushBlobs(repo string, img v1.Image) error {
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	digest, err := img.ConfigName()
	if err != nil {
		return err
	}
	if err := r.pushBlob(repo, digest, config); err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		if err := r.pushLayer(repo, layer); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registry) pushLayer(repo string, layer v1.Layer) (err error) {
	digest, err := layer.Digest()
	if err != nil {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer func() {
		if e := content.Close(); err == nil {
			err = e
		}
	}()
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return r.pushBlob(repo, digest, data)
}

func (r *Registry) pushBlob(repo string, digest v1.Hash, data []byte) error {
	path := "/v2/" + repo + "/blobs/uploads/?digest=" + digest.String()
	return r.put(http.MethodPost, path, "application/octet-stream", data)
}

// put calls the registry's handler without a network in between.
func (r *Registry) put(method, path, mediaType string, body []byte) error {
	req, err := http.NewRequest(method, "http://"+r.Addr+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", mediaType)
	var got answer
	r.store.ServeHTTP(&got, req)
	if got.status != http.StatusCreated {
		return fmt.Errorf("%s %s: status %d: %s", method, path, got.status, got.body.String())
	}
	return nil
}

// answer records a handler's reply.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}
