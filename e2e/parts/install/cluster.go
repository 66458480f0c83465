package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Cluster has the paths of the parts of a cluster, absolute.
type Cluster struct {
	APIServer string // kube-apiserver
	Etcd      string
	Kubelet   string // the agent's basis of comparison
	Kubectl   string
}

// LocateCluster returns the parts that EnsureCluster installed. It changes nothing and needs no network; the error names the
// missing parts and the remedy.
func LocateCluster() (Cluster, error) {
	cache, err := cacheDir()
	if err != nil {
		return Cluster{}, err
	}
	c := Cluster{
		APIServer: filepath.Join(cache, kubernetes.dir(), "kube-apiserver"),
		Etcd:      filepath.Join(cache, etcd.dir(), "etcd"),
		Kubelet:   filepath.Join(cache, kubernetes.dir(), "kubelet"),
		Kubectl:   filepath.Join(cache, kubectl.dir(), "kubectl"),
	}
	for _, path := range []string{c.APIServer, c.Etcd, c.Kubelet, c.Kubectl} {
		if _, err := os.Stat(path); err != nil {
			return Cluster{}, fmt.Errorf("the cluster is not complete (%w): run `go run ./e2e/parts`", err)
		}
	}
	return c, nil
}

// EnsureCluster gets the parts of a cluster as Ensure gets runtimes. It is called with a working directory in the
// project's module, beside which lies the one that pins them.
func EnsureCluster(ctx context.Context, log io.Writer) error {
	return locked(ctx, log, func(j *job) error {
		if err := errors.Join(j.buildCluster(etcd), j.buildCluster(kubernetes), j.buildCluster(kubectl)); err != nil {
			return err
		}
		_, err := LocateCluster()
		return err
	})
}
