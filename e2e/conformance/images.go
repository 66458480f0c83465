package main

import (
	"archive/tar"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

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

// nmeter is what the tests' scripts ask of it, the time with milliseconds: Debian's BusyBox has none.
const nmeter = "#!/bin/sh\necho | ts %H:%M:%.S | cut -c1-12\n"

// curl is what this program is in an image, as far as the tests' scripts ask for it: BusyBox's wget crashes where there is
// no libnss.
func curl() error {
	insecure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // as the scripts ask for it
	client := http.Client{Transport: insecure, Timeout: 15 * time.Second}
	url := os.Args[len(os.Args)-1]
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// pushImages makes the images of the tests, with the names and tags that the suite has them by, of the programs that were
// built, and gives these names.
func pushImages(r *devimages.Registry, parts install.NodeTests) (names []string, err error) {
	base, err := baseLayer(parts.BusyBox)
	if err != nil {
		return nil, err
	}
	agnhost, err := os.ReadFile(parts.Agnhost)
	if err != nil {
		return nil, err
	}
	nnp, err := os.ReadFile(parts.NonewPrivs)
	if err != nil {
		return nil, err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return nil, err
	}
	hosted := []entry{
		{name: "agnhost", mode: 0o755, data: agnhost}, {name: "agnhost-2", link: "agnhost"},
		{name: "usr/bin/curl", mode: 0o755, data: self},
		{name: "localhost.crt", mode: 0o644, data: certificate}, {name: "localhost.key", mode: 0o644, data: key},
	}
	server := v1.Config{Entrypoint: []string{"/agnhost", "netexec", "--http-port=80"}}
	shell := v1.Config{Cmd: []string{"sh"}}
	images := []struct {
		name   string
		config v1.Config
		layers [][]entry
	}{
		{"agnhost:2.63.0", v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}, [][]entry{base, hosted}},
		{"agnhost:2.55", v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}, [][]entry{base, hosted}},
		{"busybox:1.37.0-1", shell, [][]entry{base}},
		{"ipc-utils:1.4", shell, [][]entry{base}},
		{"kitten:1.8", shell, [][]entry{base, {{name: "data.json", mode: 0o644, data: []byte(`{"image": "kitten.jpg"}`)},
			{name: "etc/os-release", mode: 0o644, data: []byte("NAME=\"Alpine Linux\"\n")}}}}, // what tests look for in it
		{"nginx:1.15-4", server, [][]entry{base, hosted}},
		{"nginx:1.27-0", server, [][]entry{base, hosted}},
		{"nonroot:1.5", v1.Config{Cmd: []string{"sh"}, User: "1234"}, [][]entry{base}},
		{"nonewprivs:1.4", v1.Config{Cmd: []string{"nnp"}},
			[][]entry{base, {{name: "usr/local/bin/nnp", mode: 0o6755, data: nnp}}}},
	}
	for _, i := range images {
		i.config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		i.config.Labels = map[string]string{"image": i.name} // each has an ID of its own
		image, err := build(i.config, i.layers)
		if err == nil {
			err = r.Push("e2e-test-images/"+i.name, image)
		}
		if err != nil {
			return nil, err
		}
		names = append(names, "e2e-test-images/"+i.name)
	}
	pause, err := devimages.Image(devimages.Pause)
	return append(names, "pause:3.10.2"), errors.Join(err, r.Push("pause:3.10.2", pause))
}

func build(config v1.Config, layers [][]entry) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, l := range layers {
		data, err := pack(l)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: static.NewLayer(data, types.OCIUncompressedLayer)})
		if err != nil {
			return nil, err
		}
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

// baseLayer is BusyBox with a link for each of its programs, and the users that the tests know.
func baseLayer(busybox string) ([]entry, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, err
	}
	entries := []entry{
		{name: "bin/", mode: 0o755}, {name: "etc/", mode: 0o755}, {name: "usr/bin/", mode: 0o755},
		{name: "usr/local/bin/", mode: 0o755}, {name: "root/", mode: 0o700}, {name: "uploads/", mode: 0o755},
		{name: "tmp/", mode: 0o1777}, {name: "var/tmp/", mode: 0o1777},
		{name: "bin/busybox", mode: 0o755, data: program},
		{name: "usr/bin/nmeter", mode: 0o755, data: []byte(nmeter)},
		{name: "bin/bash", mode: 0o755, data: []byte("#!/bin/sh\nexec sh \"$@\"\n")},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/bin/sh\n" +
			"user-defined-in-image:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nuser-defined-in-image:x:1000:\n" +
			"group-defined-in-image:x:50000:user-defined-in-image\nnobody:x:65534:\n")},
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			entries = append(entries, entry{name: "bin/" + applet, link: "busybox"})
		}
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
