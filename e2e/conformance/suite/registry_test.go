package suite

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
)

// TestRegistryFolder_ServesEveryDigest follows the tag to the index, its images, their configurations and layers.
func TestRegistryFolder_ServesEveryDigest(t *testing.T) {
	pause, err := devimages.Image(devimages.Pause)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := registryFolder("pause", "testing", pause)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		files[e.name] = e.data
	}
	at := func(kind, digest string) []byte {
		hash := strings.TrimPrefix(digest, "sha256:")
		data := files["var/registry/pause/"+kind+"/sha256/"+hash[:2]+"/"+hash+"/data"]
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != hash {
			t.Fatalf("%s of digest %s: %d other bytes", kind, digest, len(data))
		}
		return data
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(at("manifests", string(files["var/registry/pause/manifests/testing"])), &index); err != nil {
		t.Fatal(err)
	}
	for _, m := range index.Manifests {
		var image v1.Manifest
		if err := json.Unmarshal(at("manifests", m.Digest.String()), &image); err != nil {
			t.Fatal(err)
		}
		at("blobs", image.Config.Digest.String())
		for _, l := range image.Layers {
			at("blobs", l.Digest.String())
		}
	}
	if len(index.Manifests) == 0 {
		t.Error("the index has no images")
	}
}
