package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/daemon"
)

// control are the daemons of the control plane beside etcd and the API server.
type control []*daemon.Daemon

// startControl starts the controller manager and the scheduler.
func startControl(ctx context.Context, c *cluster.Cluster, p parts) (started control, err error) {
	// The controller manager makes the account again, as in other clusters with a token in pods.
	err = c.Admin.CoreV1().ServiceAccounts("default").Delete(ctx, "default", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(c.Dir, name) }
	for _, d := range []struct {
		program string
		args    []string
	}{
		{p.Kubeadm.ControllerManager, []string{
			"--use-service-account-credentials", "--root-ca-file=" + c.CAFile, "--service-account-private-key-file=" + file("sa.key"),
			"--cluster-signing-cert-file=" + c.CAFile, "--cluster-signing-key-file=" + file("ca.key"),
		}},
		{p.Kubeadm.Scheduler, nil},
	} {
		name := filepath.Base(d.program)
		config, err := c.Kubeconfig("system:" + name)
		if err != nil {
			return started, err
		}
		run := &daemon.Daemon{Name: name, Log: filepath.Join(logs(), name+".log")}
		args := append([]string{"--kubeconfig=" + config, "--leader-elect=false", "--bind-address=127.0.0.1"}, d.args...)
		if err := run.Start(exec.Command(d.program, args...)); err != nil {
			return started, err
		}
		started = append(started, run)
	}
	return started, nil
}

func (all control) stop() (err error) {
	for _, d := range all {
		err = errors.Join(err, d.End(syscall.SIGTERM))
	}
	return err
}

// dns deploys CoreDNS.
//
//go:embed coredns.yaml
var dns string

// startDNS deploys CoreDNS and returns when its pods are ready.
func startDNS(ctx context.Context, c *cluster.Cluster, kubectl, config string) error {
	apply := exec.CommandContext(ctx, kubectl, "--kubeconfig="+config, "apply", "-f", "-")
	apply.Stdin = strings.NewReader(dns)
	if out, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("CoreDNS: %w: %s", err, out)
	}
	return await(ctx, "CoreDNS", func() error {
		d, err := c.Admin.AppsV1().Deployments("kube-system").Get(ctx, "coredns", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas < *d.Spec.Replicas {
			err = fmt.Errorf("%d of %d pods are ready", d.Status.ReadyReplicas, *d.Spec.Replicas)
		}
		return err
	})
}
