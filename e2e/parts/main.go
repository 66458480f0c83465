// Command parts installs the requirements of the end-to-end tests and benchmarks beyond Go, git, gcc and root: it builds pinned
// versions of containerd, runc, the CNI plugins, a cluster's programs, kubeadm and CoreDNS, unpacks Debian's older runtime, and
// installs missing Debian packages, naming each. It leaves present parts alone, so that it can be run again at any time.
//
//	go run ./e2e/parts         installs everything, and prints the paths
//	go run ./e2e/parts -only-new   leaves out Debian's older runtime
//	go run ./e2e/parts -guest bookworm,trixie   only creates the images of virtual machines, with their content
//
// The result is in $PLAYLET_CACHE, or ~/.cache/playlet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/playlet-dev/playlet/e2e/parts/install"
)

func main() {
	onlyNew := flag.Bool("only-new", false, "leave out Debian's older runtime")
	guests := flag.String("guest", "", "make the images of virtual machines of these releases of Debian, and nothing else")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	get := func() error { return run(ctx, *onlyNew) }
	if *guests != "" {
		get = func() error { return runGuests(ctx, strings.Split(*guests, ",")) }
	}
	if err := get(); err != nil {
		fmt.Fprintln(os.Stderr, "parts:", err)
		os.Exit(1)
	}
}

func runGuests(ctx context.Context, names []string) error {
	var releases []install.Release
	for _, name := range names {
		releases = append(releases, install.Release(name))
	}
	if err := install.EnsureGuest(ctx, os.Stderr, releases...); err != nil {
		return err
	}
	for _, release := range releases {
		guest, err := install.LocateGuest(release)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", release, guest.Disk)
	}
	return nil
}

func run(ctx context.Context, onlyNew bool) error {
	wanted := []install.Kind{install.New, install.Old}
	if onlyNew {
		wanted = wanted[:1]
	}
	if err := install.Ensure(ctx, os.Stderr, wanted...); err != nil {
		return err
	}
	if err := install.EnsureCluster(ctx, os.Stderr); err != nil {
		return err
	}
	if err := install.EnsureEarlier(ctx, os.Stderr); err != nil {
		return err
	}
	if err := errors.Join(install.EnsureCrun(ctx, os.Stderr), install.EnsureMachine(ctx, os.Stderr),
		install.EnsureKubeadm(ctx, os.Stderr)); err != nil {
		return err
	}
	if err := install.EnsureGuest(ctx, os.Stderr, install.Bookworm); err != nil {
		fmt.Fprintln(os.Stderr, "parts: there is no virtual machine, and its tests are skipped:", err)
	}
	for _, kind := range wanted {
		parts, err := install.Locate(kind)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n  %s\n  %s\n  %s\n", kind, parts.Containerd, parts.Shim, parts.Runc, parts.CNIDir)
	}
	cluster, err := install.LocateCluster()
	if err != nil {
		return err
	}
	fmt.Printf("cluster: %s\n  %s\n  %s\n  %s\n", cluster.APIServer, cluster.Etcd, cluster.Kubelet, cluster.Kubectl)
	return nil
}
