package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// EnsureCoreDNS builds CoreDNS alone, and returns its path.
func EnsureCoreDNS(ctx context.Context, log io.Writer) (string, error) {
	cache, err := ensure(ctx, log, func(j *job) error { return j.build(coreDNS) })
	path := filepath.Join(cache, coreDNS.dir(), "coredns")
	return path, errors.Join(err, missing(path))
}

// ClusterTests holds the paths of Kubernetes' cluster conformance suite.
type ClusterTests struct {
	Tests           string // the test binary
	SampleAPIServer string // a static program, for the image of this name
}

// EnsureClusterTests builds the suite as EnsureCluster builds a cluster, and returns its paths. Ginkgo and the other programs of
// the suite's images come from EnsureNodeTests.
func EnsureClusterTests(ctx context.Context, log io.Writer) (ClusterTests, error) {
	cache, err := ensure(ctx, log, func(j *job) error {
		return errors.Join(j.buildCluster(clusterTests), j.buildCluster(sampleAPIServer))
	})
	c := ClusterTests{
		Tests:           filepath.Join(cache, clusterTests.dir(), "e2e.test"),
		SampleAPIServer: filepath.Join(cache, sampleAPIServer.dir(), "sample-apiserver"),
	}
	return c, errors.Join(err, missing(c.Tests, c.SampleAPIServer))
}

// ensure does work while no other process does any, and returns the folder of the parts.
func ensure(ctx context.Context, log io.Writer, work func(*job) error) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	return cache, locked(ctx, log, work)
}

// missing returns an error for each path without a file.
func missing(paths ...string) (err error) {
	for _, path := range paths {
		if _, absent := os.Stat(path); absent != nil {
			err = errors.Join(err, fmt.Errorf("a part is not complete: %w", absent))
		}
	}
	return err
}
