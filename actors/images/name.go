package images

import (
	_ "crypto/sha256" // digests in image names are verified by these
	_ "crypto/sha512"
	"strings"

	"github.com/distribution/reference"
)

// runtimeName is the image as it is given to the runtime: as the pod's author wrote it and, where that has neither tag
// nor digest, with ":latest". It is not made to point to docker.io, since a runtime may have its own idea of where
// short names come from. The error says what is wrong with the name.
func runtimeName(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", err
	}
	if reference.IsNameOnly(named) && !strings.HasSuffix(image, ":latest") {
		image += ":latest"
	}
	return image, nil
}
