// Package kubeimages makes the images of a cluster that kubeadm sets up, of the programs of e2e/parts.
package kubeimages

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// Version is the version of the cluster.
const Version = "v1.36.3"

// Push pushes the images that kubeadm names, with their names of registry.k8s.io, and shell:1, which has BusyBox. The error names
// the command that gets missing parts.
func Push(r *devimages.Registry) error {
	parts, err := install.LocateKubeadm()
	if err != nil {
		return err
	}
	cluster, err := install.LocateCluster()
	if err != nil {
		return err
	}
	busyBox, err := install.LocateBusyBox()
	if err != nil {
		return err
	}
	pause, err := devimages.Image(devimages.Pause)
	if err := errors.Join(err, r.Push("pause:3.10.2", pause)); err != nil {
		return err
	}
	for _, i := range []struct {
		name, program, path, root string
		entrypoint                []string
	}{
		{"kube-apiserver:" + Version, cluster.APIServer, "usr/local/bin/kube-apiserver", "", nil},
		{"kube-controller-manager:" + Version, parts.ControllerManager, "usr/local/bin/kube-controller-manager", "", nil},
		{"kube-scheduler:" + Version, parts.Scheduler, "usr/local/bin/kube-scheduler", "", nil},
		{"kube-proxy:" + Version, parts.Proxy, "usr/local/bin/kube-proxy", parts.Tables, nil},
		{"etcd:3.6.8-0", cluster.Etcd, "usr/local/bin/etcd", "", nil},
		{"coredns/coredns:v1.14.2", parts.CoreDNS, "coredns", "", []string{"/coredns"}},
		{"shell:1", busyBox, "bin/busybox", "", []string{"/bin/sh"}},
	} {
		image, err := makeImage(i.program, i.path, i.root, i.entrypoint)
		if err == nil {
			err = r.Push(i.name, image)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeImage makes an image of one program at a path, and of the files below root. BusyBox gets its links.
func makeImage(program, path, root string, entrypoint []string) (v1.Image, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if root != "" {
		if err := w.AddFS(os.DirFS(root)); err != nil {
			return nil, err
		}
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	add := func(h tar.Header, text []byte) {
		h.Size = int64(len(text))
		err = errors.Join(err, w.WriteHeader(&h))
		_, failed := w.Write(text)
		err = errors.Join(err, failed)
	}
	add(tar.Header{Name: path, Mode: 0o755}, text)
	add(tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}, nil)
	if filepath.Base(path) == "busybox" {
		applets, failed := exec.Command(program, "--list").Output()
		err = errors.Join(err, failed)
		for applet := range strings.FieldsSeq(strings.ReplaceAll(string(applets), "busybox\n", "")) {
			add(tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
		}
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		mutate.Addendum{Layer: static.NewLayer(out.Bytes(), types.OCIUncompressedLayer)})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	file.Config = v1.Config{Entrypoint: entrypoint, Env: []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	image, err = mutate.ConfigFile(image, file)
	return mutate.ConfigMediaType(image, types.OCIConfigJSON), err
}
