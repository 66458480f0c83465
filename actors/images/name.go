package images

import (
	_ "crypto/sha256" // digests in image names are verified by these
	_ "crypto/sha512"
	"strings"

	"github.com/distribution/reference"

	"github.com/playlet-dev/playlet/actors/images/pullrecord"
)

// imageName is the name of an image, taken apart.
type imageName struct {
	// runtime is the image as it is given to the runtime: as the pod's author wrote it and, where that has neither tag nor
	// digest, with ":latest". It is not made to point to docker.io, since a runtime may have its own idea of where short
	// names come from.
	runtime string
	// registry and repository are where credentials and the queue take it to be: short names are docker.io's.
	registry, repository string
}

// recorded is by what records of pulls and the allowlist know it.
func (n imageName) recorded() pullrecord.Name { return pullrecord.NameOf(n.runtime, n.repository) }

// parseName's error says what is wrong with the name.
func parseName(image string) (imageName, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return imageName{}, err
	}
	n := imageName{runtime: image, registry: reference.Domain(named), repository: named.Name()}
	if reference.IsNameOnly(named) && !strings.HasSuffix(image, ":latest") {
		n.runtime += ":latest"
	}
	return n, nil
}
