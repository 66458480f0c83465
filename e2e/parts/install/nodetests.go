package install

import (
	"context"
	"errors"
	"io"
	"path/filepath"
)

// NodeTests has the paths of the parts of Kubernetes' node conformance suite, absolute.
type NodeTests struct {
	Tests, Ginkgo string // the test binary, and its parallel runner
	// Agnhost, NonewPrivs, DevicePlugin and BusyBox are the static programs in the images of the tests.
	Agnhost, NonewPrivs, DevicePlugin, BusyBox string
}

// busyBox is Debian's package, which is unpacked and not installed.
var busyBox = struct{ dir, pkg, upstream string }{"debian-12-busybox-1.35.0", "busybox-static", "1:1.35.0"}

func (j *job) placeBusyBox() error {
	return j.place(busyBox.dir, func(dir string) error {
		return errors.Join(j.canApt(busyBox.pkg), j.aptUpdate(), j.unpack(busyBox.pkg, busyBox.upstream, dir))
	})
}

// LocateBusyBox returns the static program that EnsureMachine, EnsureGuest and EnsureNodeTests get.
func LocateBusyBox() (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, busyBox.dir, "bin/busybox")
	return path, missing(path)
}

// EnsureNodeTests builds the suite as EnsureCluster builds a cluster, and returns its paths.
func EnsureNodeTests(ctx context.Context, log io.Writer) (NodeTests, error) {
	cache, err := ensure(ctx, log, func(j *job) error {
		return errors.Join(j.placeBusyBox(), j.buildCluster(ginkgo), j.buildCluster(nodeTests), j.buildCluster(nodeTestPlugin))
	})
	suite := filepath.Join(cache, nodeTests.dir())
	n := NodeTests{
		Tests: filepath.Join(suite, "e2e_node.test"), Ginkgo: filepath.Join(cache, ginkgo.dir(), "ginkgo"),
		Agnhost: filepath.Join(suite, "agnhost"), NonewPrivs: filepath.Join(suite, "nonewprivs"),
		DevicePlugin: filepath.Join(cache, nodeTestPlugin.dir(), "sample-device-plugin"),
		BusyBox:      filepath.Join(cache, busyBox.dir, "bin/busybox"),
	}
	return n, errors.Join(err, missing(n.Tests, n.Ginkgo, n.Agnhost, n.NonewPrivs, n.DevicePlugin, n.BusyBox))
}
