package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
)

var (
	inCluster = flag.Bool("cluster", false, "measure the node of a cluster instead, over a real kube-apiserver")
	second    = flag.Bool("kubelet", false, "with -cluster: measure the kubelet in the same run, too; the two take turns")
	binary    = flag.String("binary", "", "with -cluster: the binary of a third subject that takes the kubelet's flags")
	only      = flag.String("only", "", "with -cluster: the one of the subjects that is measured")
	crowds    = flag.String("crowds", "20,90", "with -cluster: how many pods are created at once")
	idles     = flag.String("idles", "0,50,100",
		"with -cluster: with how many pods it is measured what the agent needs while nothing happens")
)

// subject is an agent under measurement in a cluster: Playlet, or anything that takes the kubelet's flags.
type subject struct {
	name  string
	start func() error
	kill  func() error // SIGKILL
	pid   func() int
	log   func() string
	node  *cluster.Node
	api   *rest.Config // the node's API
	least bool         // it is the floor, which has no API and no restarts
	root  string       // its root folder
	logs  string       // the folder of the logs of its pods
}

// failed adds the subject and its last output to an error.
func (s *subject) failed(err error) error {
	return fmt.Errorf("%s: %w\n%s", s.name, err, lastLines(s.log(), 30))
}

// clusterBench measures subjects by a watch of the API server.
type clusterBench struct {
	stack     *stack.Stack
	cluster   *cluster.Cluster
	namespace string
	pods      *podWatch
	like      *stack.Template
	gathered  map[string]map[string]float64 // figure, subject: the figures that ratios are made of
}

func runCluster(ctx context.Context) error {
	var o stack.Options
	if *evictions > 0 {
		o.DiskMiB = imageDiskMiB
	}
	s, err := stack.New(ctx, o)
	if err != nil {
		return err
	}
	defer s.Stop() //nolint:errcheck // the namespaces go with the process
	c, err := cluster.New(ctx)
	if err != nil {
		return err
	}
	defer c.Stop() //nolint:errcheck // the same
	t := &owner{}
	defer t.clean()
	b := &clusterBench{stack: s, cluster: c, namespace: c.Namespace(t), gathered: map[string]map[string]float64{}}
	if b.pods, err = watchPods(ctx, c.Admin, b.namespace); err != nil {
		return err
	}
	subjects, err := b.subjects(t)
	if err != nil {
		return err
	}
	floor, err := b.floorSubject(t)
	if err != nil {
		return err
	}
	if err := b.capture(ctx, subjects[0]); err != nil {
		return subjects[0].failed(err)
	}
	for round := range *rounds {
		fmt.Printf("round %d of %d\n", round+1, *rounds)
		if *evictions == 0 {
			if err := b.measure(ctx, floor); err != nil {
				return floor.failed(err)
			}
		}
		for _, sub := range subjects {
			if err := b.measure(ctx, sub); err != nil {
				return sub.failed(err)
			}
		}
	}
	b.tellRatios(subjects)
	return nil
}

// measure is all that is measured of one subject in one round.
func (b *clusterBench) measure(ctx context.Context, sub *subject) error {
	return b.with(ctx, sub, func() error {
		steps := []func(context.Context, *subject) error{b.idle, b.figures, b.singly, b.crowds, b.resizes, b.restart}
		switch {
		case *evictions > 0:
			steps = []func(context.Context, *subject) error{b.evict}
		case sub.least:
			steps = []func(context.Context, *subject) error{b.idle, b.singly, b.crowds}
		}
		for _, step := range steps {
			if err := step(ctx, sub); err != nil {
				return err
			}
		}
		return nil
	})
}

// with runs a measurement with a running subject, and prints the time until its node was ready.
func (b *clusterBench) with(ctx context.Context, sub *subject, f func() error) error {
	began := time.Now()
	if err := sub.start(); err != nil {
		return err
	}
	err := b.ready(ctx, sub, began)
	if err == nil {
		b.note("node ready after start, s", sub, time.Since(began).Seconds())
		err = f()
	}
	err = errors.Join(err, b.deleteAll(context.WithoutCancel(ctx), 0), sub.kill())
	return errors.Join(err, b.nothingRuns(ctx))
}

// ready waits until a heartbeat of this start reports the subject's node as ready.
func (b *clusterBench) ready(ctx context.Context, sub *subject, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for ctx.Err() == nil {
		node, err := b.cluster.Admin.CoreV1().Nodes().Get(ctx, sub.node.Name, metav1.GetOptions{})
		if err == nil {
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue &&
					!c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
					return nil
				}
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("its node did not become ready")
}

// nothingRuns removes all sandboxes in the runtime: floor and subjects must not meet another's.
func (b *clusterBench) nothingRuns(ctx context.Context) error {
	podSandboxes, err := b.stack.Sandboxes(ctx)
	errs := []error{err}
	for _, podSandbox := range podSandboxes {
		errs = append(errs, b.stack.RemoveSandbox(ctx, podSandbox.Id))
	}
	return errors.Join(errs...)
}

// note prints a figure, and keeps it for the ratios.
func (b *clusterBench) note(figure string, sub *subject, value float64) {
	fmt.Printf("  %-9s %-52s %10.3f\n", sub.name, figure, value)
	if b.gathered[figure] == nil {
		b.gathered[figure] = map[string]float64{}
	}
	if was, ok := b.gathered[figure][sub.name]; !ok || value < was { // the best round: everything else is disturbance
		b.gathered[figure][sub.name] = value
	}
}

// owner is a substitute for a test in helpers for tests.
type owner struct{ cleanups []func() }

func (o *owner) Helper()                           {}
func (o *owner) Logf(string, ...any)               {}
func (o *owner) Errorf(format string, args ...any) { fmt.Printf("bench: "+format+"\n", args...) }
func (o *owner) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (o *owner) Cleanup(f func())                  { o.cleanups = append(o.cleanups, f) }
func (o *owner) Failed() bool                      { return false }

func (o *owner) clean() {
	for i := len(o.cleanups) - 1; i >= 0; i-- {
		o.cleanups[i]()
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
