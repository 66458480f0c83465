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

// specHashVersion begins every SpecHash. Whoever changes what goes into the hash,
// or the defaulting before it, raises it: hashes of another version are not
// compared, so that an upgrade of the agent restarts no container.
const specHashVersion = "1-"

// KubeletHash is the hash by which the kubelet of 1.36 knows whether a running
// container is still the wanted one. Since 1.31 only name and image go into it,
// because an API server allows no other change. The form is fixed: FNV-32a over
// the dump of the JSON bytes.
func KubeletHash(container *v1.Container) uint64 {
	text, err := json.Marshal(map[string]string{"image": container.Image, "name": container.Name})
	if err != nil {
		panic("cri: two strings cannot be written as JSON: " + err.Error())
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, dump.ForHash(text)) // a hash's Write never fails
	return uint64(h.Sum32())
}

// SpecHash is a hash over the whole container except its resources, which can be
// changed while it runs. It notices what an edited manifest changes and the
// kubelet's hash does not see: command, environment, mounts, probes.
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

// Changed reports whether the container that carries the annotations was made
// from another spec than this one and has to be replaced. Its own SpecHash is
// believed where it has one of this version; else (a kubelet made it, or another
// release of the agent) the kubelet's hash decides. Like the kubelet it takes a
// container without a readable hash for changed.
func Changed(container *v1.Container, annotations map[string]string) bool {
	if was := annotations[cri.AnnotationSpecHash]; strings.HasPrefix(was, specHashVersion) {
		// A container that cannot be hashed cannot have been created either.
		is, err := SpecHash(container)
		return err != nil || is != was
	}
	return ChangedForKubelet(container, annotations)
}

// ChangedForKubelet is Changed as the kubelet decides it, by name and image alone. It is for pods of an API server, which allows
// no other change of a container that exists, and whose next release may fill in defaults that are no change.
func ChangedForKubelet(container *v1.Container, annotations map[string]string) bool {
	was, err := strconv.ParseUint(annotations[cri.AnnotationHash], 16, 64)
	return err != nil || was != KubeletHash(container)
}
