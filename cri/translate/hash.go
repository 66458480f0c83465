package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"

	"github.com/playlet-dev/playlet/cri"
)

// specHashVersion is the prefix of every SpecHash. It must be raised with every change of the hashed fields or of the defaulting
// before. Hashes of another version are not compared, so that an upgrade of the agent restarts no container.
const specHashVersion = "1-"

// KubeletHash returns the hash by which the kubelet 1.36 detects a changed spec of a running container. Since 1.31 it covers only
// name and image, because an API server allows no other change. The form is fixed: FNV-32a over the dump of the JSON bytes.
func KubeletHash(container *v1.Container) uint64 {
	text, err := json.Marshal(map[string]string{"image": container.Image, "name": container.Name})
	if err != nil {
		panic("cri: two strings cannot be written as JSON: " + err.Error())
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, dump.ForHash(text)) // a hash's Write never fails
	return uint64(h.Sum32())
}

// SpecHash returns a hash of the whole container except its resources, which can change while it runs. It detects changes of an
// edited manifest that the kubelet's hash does not cover: command, environment, mounts, probes.
func SpecHash(container *v1.Container) (string, error) {
	c := *container
	c.Resources = v1.ResourceRequirements{}
	c.ResizePolicy = nil
	text, err := json.Marshal(&c)
	if err != nil {
		return "", fmt.Errorf("container %s cannot be hashed: %w", container.Name, err)
	}
	sum := sha256.Sum256(text)
	return specHashVersion + hex.EncodeToString(sum[:16]), nil
}

// Changed reports whether the container with these annotations was made from a different spec and has to be replaced. It uses the
// container's SpecHash if it has one of this version. Otherwise (a kubelet or another release of the agent made it) the kubelet's
// hash decides. As in the kubelet, a container without a readable hash counts as changed.
func Changed(container *v1.Container, annotations map[string]string) bool {
	if was := annotations[cri.AnnotationSpecHash]; strings.HasPrefix(was, specHashVersion) {
		// A container that cannot be hashed was never created either.
		is, err := SpecHash(container)
		return err != nil || is != was
	}
	return ChangedForKubelet(container, annotations)
}

// ChangedForKubelet reports a change by the kubelet's rule, name and image alone. It is for pods of an API server, which allows
// no other change of an existing container, and whose next release may add defaults that are no change.
func ChangedForKubelet(container *v1.Container, annotations map[string]string) bool {
	was, err := strconv.ParseUint(annotations[cri.AnnotationHash], 16, 64)
	return err != nil || was != KubeletHash(container)
}
