package file

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// Parse reads the pods of one manifest: decoded, defaulted, validated, with UID; and what is wrong with the others. A
// problem names its pod where the document tells it. It must not share anything between the pods of two calls. It is
// called from one worker at a time.
type Parse func(path string, data []byte) ([]*v1.Pod, []messages.ManifestProblem)

// manifestParser parses as the kubelet and the API server together would.
func manifestParser(node base.Node, now clock.PassiveClock) Parse {
	return func(path string, data []byte) ([]*v1.Pod, []messages.ManifestProblem) {
		pods, found := manifest.Load(path, data, node.Manifest(manifest.FileSource, now.Now()))
		return pods, base.Problems(found)
	}
}
