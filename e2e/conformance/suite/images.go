package suite

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"k8s.io/client-go/util/cert"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// entry is a file of an image, or a link, or a folder, which ends in a slash.
type entry struct {
	name string
	mode int64
	data []byte
	link string
}

// nmeter prints the time with milliseconds, for the tests' scripts: Debian's BusyBox lacks this applet.
const nmeter = "#!/bin/sh\necho | ts %H:%M:%.S | cut -c1-12\n"

// Programs are the static programs of the images, and Debian's with their libraries.
type Programs struct {
	install.NodeTests
	// Root holds the paths Shell, of dynamic programs.
	Root    string
	Shell   []string
	CoreDNS string
	// Etcd and SampleAPIServer are empty for a suite that does not need their images and CoreDNS's.
	Etcd, SampleAPIServer string
}

// PushImages makes the images of the tests, under the suites' names and tags, and returns these names.
func PushImages(r *devimages.Registry, p Programs) (names []string, err error) {
	base, err := baseLayer(p)
	if err != nil {
		return nil, err
	}
	read := func(path string) (data []byte) {
		if path == "" {
			return nil
		}
		data, failed := os.ReadFile(path)
		err = errors.Join(err, failed)
		return data
	}
	agnhost, nnp, dns := read(p.Agnhost), read(p.NonewPrivs), read(p.CoreDNS)
	etcd, sample, plugin := read(p.Etcd), read(p.SampleAPIServer), read(p.DevicePlugin)
	pause, failed := devimages.Image(devimages.Pause)
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	served, failed := registryFolder("pause", "testing", pause)
	err = errors.Join(err, failed)
	certificate, key, failed := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	layer := func(entries ...entry) v1.Layer {
		data, failed := pack(entries)
		err = errors.Join(err, failed)
		return static.NewLayer(data, types.OCIUncompressedLayer)
	}
	text := func(name, content string) entry { return entry{name: name, mode: 0o644, data: []byte(content)} }
	program := func(name string, content []byte) entry { return entry{name: name, mode: 0o755, data: content} }
	tools, suid := layer(base...), layer(entry{name: "usr/local/bin/nnp", mode: 0o6755, data: nnp})
	resolver := layer(program("coredns", dns))
	bash := layer(entry{name: "bin/sh", link: "bash"}) // BusyBox's shell runs its own nc, which knows no UDP
	hosted := layer(program("agnhost", agnhost), entry{name: "agnhost-2", link: "agnhost"},
		text("localhost.crt", string(certificate)), text("localhost.key", string(key)))
	server := v1.Config{Entrypoint: []string{"/agnhost", "netexec", "--http-port=80"}}
	host := func(command string) v1.Config {
		return v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{command}}
	}
	shell := v1.Config{Cmd: []string{"sh"}}
	type builtImage struct {
		name   string
		config v1.Config
		layers []v1.Layer
	}
	images := []builtImage{
		{"agnhost:2.63.0", host("pause"), []v1.Layer{tools, hosted, resolver, bash, layer(served...)}},
		{"agnhost:2.55", host("pause"), []v1.Layer{tools, hosted, resolver, bash}},
		{"busybox:1.37.0-1", shell, []v1.Layer{tools}},
		{"glibc-dns-testing:2.0.0", shell, []v1.Layer{tools, resolver}},
		{"ipc-utils:1.4", shell, []v1.Layer{tools}},
		{"kitten:1.8", host("test-webserver"), []v1.Layer{tools, hosted,
			layer(text("data.json", `{"image": "kitten.jpg"}`), text("etc/os-release", "NAME=\"Alpine Linux\"\n"))}}, // tests read both
		{"nautilus:1.8", host("test-webserver"), []v1.Layer{tools, hosted, layer(text("data.json", `{"image": "nautilus.jpg"}`))}},
		{"nginx:1.15-4", server, []v1.Layer{tools, hosted}},
		{"nginx:1.27-0", server, []v1.Layer{tools, hosted}},
		{"nonroot:1.5", v1.Config{Cmd: []string{"sh"}, User: "1234"}, []v1.Layer{tools}},
		{"perl:5.26", shell, []v1.Layer{tools}}, // no test runs a program of it
		{"sample-device-plugin:1.7", v1.Config{Entrypoint: []string{"/sampledeviceplugin", "-alsologtostderr"}},
			[]v1.Layer{tools, layer(program("sampledeviceplugin", plugin))}},
		{"nonewprivs:1.4", v1.Config{Cmd: []string{"nnp"}}, []v1.Layer{tools, suid}},
	}
	if p.Etcd != "" {
		images = append(images,
			builtImage{"../coredns/coredns:v1.14.2", v1.Config{Entrypoint: []string{"/coredns"}}, []v1.Layer{resolver}},
			builtImage{"../etcd:3.6.8-0", shell, []v1.Layer{tools, layer(program("usr/local/bin/etcd", etcd))}},
			builtImage{"sample-apiserver:1.29.2", v1.Config{Entrypoint: []string{"/sample-apiserver"}},
				[]v1.Layer{tools, layer(program("sample-apiserver", sample))}})
	}
	for _, i := range images {
		i.config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		i.config.Labels = map[string]string{"image": i.name} // each has an ID of its own
		name := path.Join("e2e-test-images", i.name)
		image, failed := build(i.config, i.layers)
		if err = errors.Join(err, failed); err == nil {
			err = r.Push(name, image)
		}
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return append(names, "pause:3.10.2"), r.Push("pause:3.10.2", pause)
}

func build(config v1.Config, layers []v1.Layer) (v1.Image, error) {
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", "amd64", config
	image, err = mutate.ConfigFile(image, file)
	return mutate.ConfigMediaType(image, types.OCIConfigJSON), err
}

// baseLayer is BusyBox with a link for each of its applets, Debian's programs before it, and the users that the tests know.
func baseLayer(p Programs) ([]entry, error) {
	program, err := os.ReadFile(p.BusyBox)
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command(p.BusyBox, "--list").Output()
	if err != nil {
		return nil, err
	}
	entries := []entry{
		{name: "bin/", mode: 0o755}, {name: "etc/", mode: 0o755}, {name: "usr/bin/", mode: 0o755},
		{name: "usr/local/bin/", mode: 0o755}, {name: "root/", mode: 0o700}, {name: "uploads/", mode: 0o755},
		{name: "tmp/", mode: 0o1777}, {name: "var/tmp/", mode: 0o1777},
		{name: "bin/busybox", mode: 0o755, data: program},
		{name: "usr/bin/nmeter", mode: 0o755, data: []byte(nmeter)},
		// The suites run sh by $PATH, and /bin/sh where they read the messages of BusyBox, which hides variables with a dash.
		{name: "usr/local/bin/sh", link: "/bin/bash"},
		{name: "bin/nc", link: "nc.openbsd"},
		{name: "etc/nsswitch.conf", mode: 0o644, data: []byte("hosts: files dns\n")},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/bin/sh\n" +
			"user-defined-in-image:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nuser-defined-in-image:x:1000:\n" +
			"group-defined-in-image:x:50000:user-defined-in-image\nnobody:x:65534:\n")},
	}
	dynamic, err := withLibraries(p.Root, p.Shell)
	if err != nil {
		return nil, err
	}
	entries = append(entries, dynamic...)
	for applet := range strings.FieldsSeq(string(applets)) {
		name := "bin/" + applet
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.name == name }) {
			entries = append(entries, entry{name: name, link: "busybox"})
		}
	}
	return entries, nil
}

// loader is the program that finds the libraries of another.
const loader = "lib64/ld-linux-x86-64.so.2"

// withLibraries reads programs below a root, and the libraries that its loader finds for them there.
func withLibraries(root string, programs []string) (entries []entry, err error) {
	files := append([]string{loader}, programs...)
	for _, p := range programs {
		list := exec.Command("/"+loader, "--list", "/"+p)
		list.SysProcAttr, list.Dir = &syscall.SysProcAttr{Chroot: root}, "/"
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("libraries of %s: %w", p, err)
		}
		for line := range strings.Lines(string(out)) {
			if _, at, found := strings.Cut(line, "=> /"); found {
				files = append(files, strings.Fields(at)[0])
			}
		}
	}
	slices.Sort(files)
	for _, name := range slices.Compact(files) {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: name, mode: 0o755, data: data})
	}
	return entries, nil
}

func pack(entries []entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		head := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: e.mode, Size: int64(len(e.data)), Linkname: e.link}
		switch {
		case e.link != "":
			head.Typeflag = tar.TypeSymlink
		case strings.HasSuffix(e.name, "/"):
			head.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(head); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}
