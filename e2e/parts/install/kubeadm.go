package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Kubeadm has the additional parts of a cluster set up by kubeadm, beside those of Cluster, as absolute paths.
type Kubeadm struct {
	Kubeadm, ControllerManager, Scheduler, Proxy, CoreDNS string
	// Tables is a root file system with the programs that kube-proxy runs: iptables, ip6tables.
	Tables string
}

var (
	// controlPlane is apart from kubernetes, which need not be built again for it.
	controlPlane = part{
		name: "control-plane", module: kubernetes.module, version: kubernetes.version,
		programs:   []string{"cmd/kubeadm", "cmd/kube-controller-manager", "cmd/kube-scheduler", "cmd/kube-proxy"},
		setVersion: kubernetes.setVersion, set: kubernetes.set,
	}
	// coreDNS has the version that kubeadm of controlPlane deploys.
	coreDNS = part{name: "coredns", module: "github.com/coredns/coredns", version: "v1.14.2", programs: []string{""}}
)

// tablesDir holds Debian 12's packages with the programs of kube-proxy and their libraries, unpacked and not installed.
const tablesDir = "debian-12-iptables-1.8.9"

var tablesPackages = []string{"iptables", "netbase", "libc6", "libip4tc2", "libip6tc2", "libmnl0", "libnetfilter-conntrack3",
	"libnfnetlink0", "libnftnl11", "libxtables12"}

// EnsureKubeadm installs the parts as Ensure installs runtimes, from the module that pins a cluster's versions.
func EnsureKubeadm(ctx context.Context, log io.Writer) error {
	return locked(ctx, log, func(j *job) error {
		err := errors.Join(j.buildCluster(controlPlane), j.build(coreDNS), j.placeTables())
		if err == nil {
			_, err = LocateKubeadm()
		}
		return err
	})
}

// placeTables unpacks tablesPackages and links the programs that Debian links when it configures the packages.
func (j *job) placeTables() error {
	return j.place(tablesDir, func(dir string) error {
		if err := j.canApt("Debian 12's iptables"); err != nil {
			return err
		}
		return j.step("downloading Debian 12's iptables", func() error {
			if err := j.aptUpdate(); err != nil {
				return err
			}
			if err := j.unpackNewest(dir, tablesPackages...); err != nil {
				return err
			}
			for _, name := range []string{"iptables", "ip6tables"} {
				for _, suffix := range []string{"", "-save", "-restore"} {
					if err := os.Symlink("xtables-nft-multi", filepath.Join(dir, "usr/sbin", name+suffix)); err != nil {
						return err
					}
				}
			}
			return run(exec.CommandContext(j.ctx, "chroot", dir, "/usr/sbin/iptables", "--version")) // shows a missing library
		})
	})
}

// LocateKubeadm gives the parts that EnsureKubeadm got before; the error names how to get them.
func LocateKubeadm() (Kubeadm, error) {
	cache, err := cacheDir()
	if err != nil {
		return Kubeadm{}, err
	}
	in := func(name string) string { return filepath.Join(cache, controlPlane.dir(), name) }
	k := Kubeadm{
		Kubeadm: in("kubeadm"), ControllerManager: in("kube-controller-manager"), Scheduler: in("kube-scheduler"),
		Proxy: in("kube-proxy"), CoreDNS: filepath.Join(cache, coreDNS.dir(), "coredns"),
		Tables: filepath.Join(cache, tablesDir),
	}
	for _, path := range []string{k.Kubeadm, k.ControllerManager, k.Scheduler, k.Proxy, k.CoreDNS, k.Tables} {
		if _, err := os.Stat(path); err != nil {
			return Kubeadm{}, fmt.Errorf("the parts of kubeadm are not complete (%w): run `go run ./e2e/parts`", err)
		}
	}
	return k, nil
}
