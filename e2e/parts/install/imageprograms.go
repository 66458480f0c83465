package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// imagePrograms is the part with the programs that Kubernetes' test images have and BusyBox lacks, with their libraries. The
// packages are unpacked and not installed; the number is raised with the list.
var imagePrograms = struct {
	dir      string
	programs []string
	packages []string
}{
	"debian-12-image-programs-1",
	[]string{"bash", "dig", "getent", "curl", "nc.openbsd", "ss", "ip"},
	[]string{
		"bash", "bind9-dnsutils", "bind9-libs", "curl", "iproute2", "netcat-openbsd", "libc-bin",
		"libbpf1", "libbrotli1", "libbsd0", "libbz2-1.0", "libc6", "libcap2", "libcom-err2", "libcurl4", "libdb5.3", "libedit2",
		"libelf1", "libffi8", "libfstrm0", "libgcc-s1", "libgmp10", "libgnutls30", "libgssapi-krb5-2", "libhogweed6", "libicu72",
		"libidn2-0", "libjemalloc2", "libjson-c5", "libk5crypto3", "libkeyutils1", "libkrb5-3", "libkrb5support0",
		"libldap-2.5-0", "liblmdb0", "liblzma5", "libmaxminddb0", "libmd0", "libmnl0", "libnettle8", "libnghttp2-14",
		"libp11-kit0", "libpcre2-8-0", "libprotobuf-c1", "libpsl5", "librtmp1", "libsasl2-2", "libselinux1", "libssh2-1",
		"libssl3", "libstdc++6", "libtasn1-6", "libtinfo6", "libtirpc3", "libunistring2", "libuv1", "libxml2", "libxtables12",
		"libzstd1", "zlib1g",
	},
}

// EnsureImagePrograms gets the programs as Ensure gets runtimes. It returns the folder that is the root of their paths, and
// their paths in it.
func EnsureImagePrograms(ctx context.Context, log io.Writer) (root string, programs []string, err error) {
	cache, err := ensure(ctx, log, func(j *job) error {
		return j.place(imagePrograms.dir, func(dir string) error {
			if err := j.canApt("programs for the images of tests"); err != nil {
				return err
			}
			return j.step("downloading programs for the images of tests", func() error {
				if err := j.aptUpdate(); err != nil {
					return err
				}
				return j.unpackNewest(dir, imagePrograms.packages...)
			})
		})
	})
	root = filepath.Join(cache, imagePrograms.dir)
	for _, name := range imagePrograms.programs {
		at := ""
		for _, folder := range []string{"bin", "usr/bin", "sbin"} {
			if info, err := os.Lstat(filepath.Join(root, folder, name)); err == nil && info.Mode().IsRegular() {
				at = filepath.Join(folder, name)
			}
		}
		if at == "" {
			err = errors.Join(err, fmt.Errorf("%s has no program %s", root, name))
		}
		programs = append(programs, at)
	}
	return root, programs, err
}
