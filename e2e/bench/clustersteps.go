package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/e2e/cluster"
)

// grace is the grace period of the measured pods, in seconds. Their process ends at its signal.
const grace = 2

// create has so many pods created side by side, and gives their UIDs.
func (b *clusterBench) create(ctx context.Context, sub *subject, n int) ([]string, error) {
	uids, errs := make([]string, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			seconds, no := int64(grace), false
			pod, err := b.cluster.Admin.CoreV1().Pods(b.namespace).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"},
				Spec: corev1.PodSpec{
					NodeName: sub.node.Name, TerminationGracePeriodSeconds: &seconds, AutomountServiceAccountToken: &no,
					Containers: []corev1.Container{{Name: "hello", Image: b.stack.HelloImage(),
						ImagePullPolicy: corev1.PullIfNotPresent}},
				},
			}, metav1.CreateOptions{})
			if errs[i] = err; err == nil {
				uids[i] = string(pod.UID)
			}
		})
	}
	all.Wait()
	return uids, errors.Join(errs...)
}

// deleteAll deletes all pods of the namespace at once; with seconds 0 without grace.
func (b *clusterBench) deleteAll(ctx context.Context, seconds int64) error {
	return b.cluster.Admin.CoreV1().Pods(b.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &seconds},
		metav1.ListOptions{})
}

// singly measures pods that are alone: from their creation to Ready seen by a watch.
func (b *clusterBench) singly(ctx context.Context, sub *subject) error {
	const pods = 10
	var took, ended []time.Duration
	for range pods {
		began := time.Now()
		uids, err := b.create(ctx, sub, 1)
		if err != nil {
			return err
		}
		at, err := b.pods.allReady(ctx, uids)
		if err != nil {
			return err
		}
		took = append(took, at[0].Sub(began))
		began = time.Now()
		if err := b.deleteAll(ctx, grace); err != nil {
			return err
		}
		if at, err = b.pods.allGone(ctx, uids); err != nil {
			return err
		}
		ended = append(ended, at[0].Sub(began))
	}
	b.note("one at a time, ready, s (p50)", sub, quantile(took, 0.5).Seconds())
	b.note("one at a time, ready, s (last)", sub, slices.Max(took).Seconds())
	b.note("one at a time, deleted, s (p50)", sub, quantile(ended, 0.5).Seconds())
	return nil
}

func (b *clusterBench) crowds(ctx context.Context, sub *subject) error {
	sizes, err := numbers(*crowds)
	if err != nil {
		return err
	}
	for _, n := range sizes {
		if err := b.crowd(ctx, sub, n); err != nil {
			return err
		}
	}
	return nil
}

// crowd measures pods that are created at once, and their deletion at once.
func (b *clusterBench) crowd(ctx context.Context, sub *subject, n int) error {
	before, err := usage(sub.pid())
	if err != nil {
		return err
	}
	began := time.Now()
	uids, err := b.create(ctx, sub, n)
	if err != nil {
		return err
	}
	at, err := b.pods.allReady(ctx, uids)
	if err != nil {
		return err
	}
	after, err := usage(sub.pid())
	if err != nil {
		return err
	}
	took := since(began, at)
	what := fmt.Sprintf("%d at once, ", n)
	b.note(what+"ready, s (p50)", sub, quantile(took, 0.5).Seconds())
	b.note(what+"ready, s (last)", sub, slices.Max(took).Seconds())
	b.note(what+"CPU, s", sub, after.cpu-before.cpu)
	b.note(what+"resident, MiB", sub, after.rss)
	if err := b.writes(what, sub, began, slices.Max(took)); err != nil {
		return err
	}
	began = time.Now()
	if err := b.deleteAll(ctx, grace); err != nil {
		return err
	}
	if at, err = b.pods.allGone(ctx, uids); err != nil {
		return err
	}
	b.note(what+"deleted, s (last)", sub, slices.Max(since(began, at)).Seconds())
	return nil
}

// writes counts the node's requests to the API server in the meantime.
func (b *clusterBench) writes(what string, sub *subject, began time.Time, took time.Duration) error {
	all, err := b.cluster.Requests(sub.node.Name)
	if err != nil {
		return err
	}
	statuses, events := 0, 0
	for _, r := range cluster.Since(all, began) {
		switch {
		case r.Verb == "patch" && r.Object.Resource == "pods" && r.Object.Subresource == "status":
			statuses++
		case r.Object.Resource == "events":
			events++
		}
	}
	b.note(what+"status writes", sub, float64(statuses))
	b.note(what+"status writes a second", sub, float64(statuses)/took.Seconds())
	b.note(what+"event writes", sub, float64(events))
	return nil
}

// restart measures from a kill -9, after which the subject is started again at once, to the first new pod's Ready.
func (b *clusterBench) restart(ctx context.Context, sub *subject) error {
	if _, err := b.create(ctx, sub, 1); err != nil {
		return err
	}
	began := time.Now()
	if err := sub.kill(); err != nil {
		return err
	}
	uids, err := b.create(ctx, sub, 1)
	if err != nil {
		return err
	}
	if err := sub.start(); err != nil {
		return err
	}
	at, err := b.pods.allReady(ctx, uids)
	if err != nil {
		return err
	}
	b.note("killed and started, first new pod ready, s", sub, at[0].Sub(began).Seconds())
	return b.clear(ctx)
}

// clear deletes all pods and waits until they are gone.
func (b *clusterBench) clear(ctx context.Context) error {
	list, err := b.cluster.Admin.CoreV1().Pods(b.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var uids []string
	for i := range list.Items {
		uids = append(uids, string(list.Items[i].UID))
	}
	if err := b.deleteAll(ctx, grace); err != nil {
		return err
	}
	_, err = b.pods.allGone(ctx, uids)
	return err
}

// idle measures the subject's usage with unchanged pods.
func (b *clusterBench) idle(ctx context.Context, sub *subject) error {
	sizes, err := numbers(*idles)
	if err != nil {
		return err
	}
	const settle, window = 3 * time.Second, 20 * time.Second
	have := 0
	for _, n := range sizes {
		uids, err := b.create(ctx, sub, n-have)
		if err != nil {
			return err
		}
		have = n
		if _, err := b.pods.allReady(ctx, uids); err != nil {
			return err
		}
		time.Sleep(settle)
		before, err := usage(sub.pid())
		if err != nil {
			return err
		}
		time.Sleep(window) // the usage of this window is measured
		after, err := usage(sub.pid())
		if err != nil {
			return err
		}
		what := fmt.Sprintf("idle with %d pods, ", n)
		b.note(what+"cores", sub, (after.cpu-before.cpu)/window.Seconds())
		b.note(what+"resident, MiB", sub, after.rss)
		b.note(what+"anonymous, MiB", sub, after.anon)
	}
	began := time.Now()
	if err := b.clear(ctx); err != nil {
		return err
	}
	b.note(fmt.Sprintf("%d deleted, s (last)", have), sub, time.Since(began).Seconds())
	return nil
}

// floor makes the same calls with no agent.
func (b *clusterBench) floor(ctx context.Context) error {
	none := &subject{name: "floor"}
	times, _, err := b.stack.Floor(ctx, b.like, 10, 1)
	if err != nil {
		return err
	}
	var own []time.Duration
	for _, t := range times {
		own = append(own, t.Own())
	}
	b.note("one at a time, ready, s (p50)", none, quantile(own, 0.5).Seconds())
	sizes, err := numbers(*crowds)
	if err != nil {
		return err
	}
	for _, n := range sizes {
		for _, parallel := range []int{4, 8,
			n} { // each figure's best counts: of all together that is more than one of them reached
			fmt.Printf("  floor     with %d pods under way\n", parallel)
			times, _, err := b.stack.Floor(ctx, b.like, n, parallel)
			if err != nil {
				return err
			}
			var ends []time.Duration
			for _, t := range times {
				ends = append(ends, t.Started)
			}
			what := fmt.Sprintf("%d at once, ", n)
			b.note(what+"ready, s (p50)", none, quantile(ends, 0.5).Seconds())
			b.note(what+"ready, s (last)", none, slices.Max(ends).Seconds())
		}
	}
	return nil
}

// capture runs a pod on a subject, and records its calls to the runtime for the floor.
func (b *clusterBench) capture(ctx context.Context, sub *subject) error {
	return b.with(ctx, sub, func() error {
		uids, err := b.create(ctx, sub, 1)
		if err != nil {
			return err
		}
		if _, err := b.pods.allReady(ctx, uids); err != nil {
			return err
		}
		if b.like, err = b.stack.Capture(ctx, uids[0]); err != nil {
			return err
		}
		return b.clear(ctx)
	})
}

func since(began time.Time, at []time.Time) []time.Duration {
	out := make([]time.Duration, len(at))
	for i := range at {
		out[i] = at[i].Sub(began)
	}
	return out
}

func numbers(text string) ([]int, error) {
	var out []int
	for _, field := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil {
			return nil, fmt.Errorf("%q is no list of numbers", text)
		}
		out = append(out, n)
	}
	return out, nil
}
