package kinds

import (
	"context"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// contentOf describes a volume whose files the agent writes as a projected volume. It returns the plugin's name, the sources,
// and the mode of files without a mode of their own. The name is empty for other kinds of volumes.
func contentOf(v *v1.Volume) (kind string, sources []v1.VolumeProjection, mode int32) {
	var asked *int32
	switch {
	case v.ConfigMap != nil:
		kind, asked = "kubernetes.io/configmap", v.ConfigMap.DefaultMode
		sources = []v1.VolumeProjection{{ConfigMap: &v1.ConfigMapProjection{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional}}}
	case v.Secret != nil:
		kind, asked = "kubernetes.io/secret", v.Secret.DefaultMode
		sources = []v1.VolumeProjection{{Secret: &v1.SecretProjection{
			LocalObjectReference: v1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items,
			Optional: v.Secret.Optional}}}
	case v.DownwardAPI != nil:
		kind, asked = "kubernetes.io/downward-api", v.DownwardAPI.DefaultMode
		sources = []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{Items: v.DownwardAPI.Items}}}
	case v.Projected != nil:
		kind, asked, sources = "kubernetes.io/projected", v.Projected.DefaultMode, v.Projected.Sources
	}
	return kind, sources, ptr.Deref(asked, v1.ProjectedVolumeSourceDefaultMode)
}

// pathsOf returns the paths of files that the sources themselves specify.
func pathsOf(sources []v1.VolumeProjection) (paths []string) {
	var items []v1.KeyToPath
	for _, s := range sources {
		switch {
		case s.ConfigMap != nil:
			items = append(items, s.ConfigMap.Items...)
		case s.Secret != nil:
			items = append(items, s.Secret.Items...)
		case s.DownwardAPI != nil:
			for _, item := range s.DownwardAPI.Items {
				paths = append(paths, item.Path)
			}
		case s.ServiceAccountToken != nil:
			paths = append(paths, s.ServiceAccountToken.Path)
		case s.ClusterTrustBundle != nil:
			paths = append(paths, s.ClusterTrustBundle.Path)
		case s.PodCertificate != nil:
			c := s.PodCertificate
			paths = append(paths, slices.DeleteFunc([]string{c.CredentialBundlePath, c.KeyPath, c.CertificateChainPath},
				func(path string) bool { return path == "" })...)
		}
	}
	for _, item := range items {
		paths = append(paths, item.Path)
	}
	return paths
}

// filesOf returns the files of a volume by path. If two sources have the same path, the later one wins. An error that a retry
// cannot fix is a Permanent one. there is true of a volume that has been written: if it has one source, an absent object that may
// exist is an error.
func filesOf(ctx context.Context, p Folder, v *v1.Volume, there bool) (map[string]file, error) {
	_, sources, mode := contentOf(v)
	there = there && len(sources) == 1 // or the other sources would not be updated
	out := map[string]file{}
	for i, s := range sources {
		var err error
		switch {
		case s.ConfigMap != nil:
			err = configMapKeys(p, s.ConfigMap.Name, there).files(out, s.ConfigMap.Items, s.ConfigMap.Optional, mode)
		case s.Secret != nil:
			err = secretKeys(p, s.Secret.Name, there).files(out, s.Secret.Items, s.Secret.Optional, mode)
		case s.DownwardAPI != nil:
			err = downwardFiles(p, out, s.DownwardAPI.Items, mode)
		case s.ServiceAccountToken != nil:
			err = tokenFile(ctx, p, out, s.ServiceAccountToken, mode)
		case s.ClusterTrustBundle != nil:
			err = bundleFile(p, out, s.ClusterTrustBundle, mode)
		case s.PodCertificate != nil:
			err = certificateFiles(ctx, p, out, v.Name, i, s.PodCertificate, mode)
		default:
			err = Permanent("source %d of the projected volume is empty or not supported", i)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keys are the keys of an object in the pod's namespace, or the error of reading it.
type keys struct {
	object messages.Cause // its kind and name
	data   map[string][]byte
	found  bool
	err    error
}

func configMapKeys(p Folder, name string, there bool) keys {
	object, found, err := p.Node.Objects.ConfigMap(p.Pod, name)
	k := keys{messages.Cause{Kind: "ConfigMap", Name: p.Pod.Namespace + "/" + name}, map[string][]byte{}, found, err}
	if err == nil && found {
		for key, text := range object.Data {
			k.data[key] = []byte(text)
		}
		maps.Copy(k.data, object.BinaryData)
	}
	return k.written(p, there, objectset.ConfigMap, name)
}

func secretKeys(p Folder, name string, there bool) keys {
	object, found, err := p.Node.Objects.Secret(p.Pod, name)
	k := keys{messages.Cause{Kind: "Secret", Name: p.Pod.Namespace + "/" + name}, nil, found, err}
	if err == nil && found {
		k.data = object.Data
	}
	return k.written(p, there, objectset.Secret, name)
}

// written returns the keys for a volume that has been written, where there is set.
func (k keys) written(p Folder, there bool, kind objectset.Kind, name string) keys {
	if there && !k.found && k.err == nil {
		k.err = p.Node.Objects.MayExist(p.Pod, kind, name)
	}
	return k
}

// files adds the keys that the items request. Without items it adds all keys under their own names.
func (k keys) files(out map[string]file, items []v1.KeyToPath, optional *bool, mode int32) error {
	switch {
	case k.err != nil:
		return k.object.Unread(k.err)
	case !k.found && !ptr.Deref(optional, false):
		return k.object.Absent()
	case len(items) == 0:
		for key, data := range k.data {
			out[key] = file{data: data, mode: mode}
		}
	}
	for _, item := range items {
		if data, ok := k.data[item.Key]; ok {
			out[item.Path] = file{data: data, mode: ptr.Deref(item.Mode, mode)}
		} else if !ptr.Deref(optional, false) {
			return k.object.LacksKey(item.Key)
		}
	}
	return nil
}

// downwardFiles adds the fields and resources of the pod that the items request.
func downwardFiles(p Folder, out map[string]file, items []v1.DownwardAPIVolumeFile, mode int32) error {
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = translate.FieldValue(p.Pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = translate.ResourceValue(p.Pod, item.ResourceFieldRef, p.Node.Allocatable)
		default:
			err = errors.New("neither fieldRef nor resourceFieldRef is set")
		}
		if err != nil {
			return Permanent("file %q: %w", item.Path, err)
		}
		out[item.Path] = file{data: []byte(text), mode: ptr.Deref(item.Mode, mode)}
	}
	return nil
}

// OfObjects reports whether a source of a volume is a ConfigMap, Secret or ClusterTrustBundle.
func OfObjects(s v1.VolumeProjection) bool {
	return s.ConfigMap != nil || s.Secret != nil || ofBundles(s)
}

func ofBundles(s v1.VolumeProjection) bool { return s.ClusterTrustBundle != nil }

// OfTokens reports whether a source of a volume is a token or certificate, which the API server is asked for.
func OfTokens(s v1.VolumeProjection) bool {
	return s.ServiceAccountToken != nil || s.PodCertificate != nil
}

func ofThePod(s v1.VolumeProjection) bool { return s.DownwardAPI != nil }

// Holds reports whether a volume has such a source.
func Holds(v *v1.Volume, such func(v1.VolumeProjection) bool) bool {
	_, sources, _ := contentOf(v)
	return slices.ContainsFunc(sources, such)
}

// AnyHolds reports whether any volume that the pod uses has such a source.
func AnyHolds(pod *v1.Pod, such func(v1.VolumeProjection) bool) bool {
	return slices.ContainsFunc(podspec.UsedVolumes(pod), func(v *v1.Volume) bool { return Holds(v, such) })
}

// SameVolumes reports whether two pods desire the same volumes with the same content. A static pod can change and keep its UID.
func SameVolumes(a, b *v1.Pod) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	same := equality.Semantic.DeepEqual
	return same(podspec.UsedVolumes(a), podspec.UsedVolumes(b)) && same(FSGroupOf(a), FSGroupOf(b)) &&
		(!AnyHolds(a, ofThePod) || sameReport(a, b))
}

// sameReport reports whether the downward API has the same values for two pods.
func sameReport(a, b *v1.Pod) bool {
	same := equality.Semantic.DeepEqual
	resources := func(x, y v1.Container) bool { return x.Name == y.Name && same(x.Resources, y.Resources) }
	return a.Name == b.Name && a.Namespace == b.Namespace && same(a.Labels, b.Labels) && same(a.Annotations, b.Annotations) &&
		same(a.Spec.Resources, b.Spec.Resources) && slices.EqualFunc(a.Spec.Containers, b.Spec.Containers, resources) &&
		slices.EqualFunc(a.Spec.InitContainers, b.Spec.InitContainers, resources)
}
