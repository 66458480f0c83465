package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
	what := fmt.Sprintf("%d at once, ", n)
	before, err := usage(sub.pid())
	if err != nil {
		return err
	}
	calls, err := runtimeCalls(ctx, sub)
	if err != nil {
		return err
	}
	began := time.Now()
	profiled := make(chan error, 1)
	go func() { profiled <- b.keepProfile(ctx, sub, fmt.Sprintf("crowd-%d", n), "profile?seconds=15") }()
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
	b.note(what+"ready, s (p50)", sub, quantile(took, 0.5).Seconds())
	b.note(what+"ready, s (last)", sub, slices.Max(took).Seconds())
	b.note(what+"CPU, s", sub, after.cpu-before.cpu)
	b.note(what+"resident, MiB", sub, after.rss)
	if err := <-profiled; err != nil {
		return err
	}
	deleted := time.Now()
	go func() { profiled <- b.keepProfile(ctx, sub, fmt.Sprintf("crowd-%d-deleted", n), "profile?seconds=15") }()
	if err := b.deleteAll(ctx, grace); err != nil {
		return err
	}
	if at, err = b.pods.allGone(ctx, uids); err != nil {
		return err
	}
	took = since(deleted, at)
	b.note(what+"deleted, s (p50)", sub, quantile(took, 0.5).Seconds())
	b.note(what+"deleted, s (last)", sub, slices.Max(took).Seconds())
	if err := b.remains(ctx, uids); err != nil {
		return err
	}
	last, err := usage(sub.pid())
	if err != nil {
		return err
	}
	b.note(what+"deletion, CPU, s", sub, last.cpu-after.cpu)
	if err := b.requests(what, sub, began, n); err != nil {
		return err
	}
	return errors.Join(b.runtimeCalls(ctx, what, sub, calls, n), <-profiled)
}

// remains waits until the runtime has nothing left of the pods, and their last Events are written. A kubelet leaves the remains
// to its collection: the wait is bounded.
func (b *clusterBench) remains(ctx context.Context, uids []string) error {
	const quiet, most = 3 * time.Second, 20 * time.Second
	began := time.Now()
	for {
		list, err := b.stack.Sandboxes(ctx)
		if err != nil {
			return err
		}
		left := slices.ContainsFunc(list, func(s *runtimeapi.PodSandbox) bool {
			return slices.Contains(uids, s.GetMetadata().GetUid())
		})
		if passed := time.Since(began); passed > most || !left && passed > quiet {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// requests counts the node's requests to the API server since began, by verb and resource, per pod. Requests for the node itself
// do not count.
func (b *clusterBench) requests(what string, sub *subject, began time.Time, pods int) error {
	all, err := b.cluster.Requests(sub.node.Name)
	if err != nil {
		return err
	}
	counts, sum := map[string]int{}, 0
	for _, r := range cluster.Since(all, began) {
		resource := r.Object.Resource
		if r.Stage != "ResponseComplete" || r.Verb == "watch" ||
			resource == "nodes" || resource == "leases" || resource == "csinodes" {
			continue
		}
		if r.Object.Subresource != "" {
			resource += "/" + r.Object.Subresource
		}
		counts[r.Verb+" "+resource]++
		sum++
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		b.note(what+"requests a pod, "+kind, sub, float64(counts[kind])/float64(pods))
	}
	b.note(what+"requests a pod, all", sub, float64(sum)/float64(pods))
	return nil
}

// runtimeCalls counts the calls of the runtime since an earlier count, by method, per pod.
func (b *clusterBench) runtimeCalls(ctx context.Context, what string, sub *subject, before map[string]float64, pods int) error {
	after, err := runtimeCalls(ctx, sub)
	for _, method := range slices.Sorted(maps.Keys(after)) {
		if n := after[method] - before[method]; n > 0 {
			b.note(what+"calls a pod, "+method, sub, n/float64(pods))
		}
	}
	return err
}

// runtimeCalls reads the subject's own count of its calls of the runtime, by method.
func runtimeCalls(ctx context.Context, sub *subject) (map[string]float64, error) {
	out := map[string]float64{}
	if sub.least {
		return out, nil
	}
	client, err := rest.HTTPClientFor(sub.api)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	var text bytes.Buffer
	if _, err := get(ctx, client, sub.api.Host+"/metrics", &text); err != nil {
		return nil, err
	}
	for line := range strings.Lines(text.String()) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), `kubelet_runtime_operations_total{operation_type="`)
		if method, value, is := strings.Cut(rest, `"} `); ok && is {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, err
			}
			out[method] = n
		}
	}
	return out, nil
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

// clearTimed deletes all pods, waits until they are gone, and returns how long each took.
func (b *clusterBench) clearTimed(ctx context.Context) ([]time.Duration, error) {
	list, err := b.cluster.Admin.CoreV1().Pods(b.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var uids []string
	for i := range list.Items {
		uids = append(uids, string(list.Items[i].UID))
	}
	began := time.Now()
	if err := b.deleteAll(ctx, grace); err != nil {
		return nil, err
	}
	at, err := b.pods.allGone(ctx, uids)
	return since(began, at), err
}

func (b *clusterBench) clear(ctx context.Context) error {
	_, err := b.clearTimed(ctx)
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
		if err := b.keepProfile(ctx, sub, fmt.Sprintf("idle-%d", n), "heap?gc=1"); err != nil {
			return err
		}
	}
	took, err := b.clearTimed(ctx)
	if err != nil || have == 0 {
		return err
	}
	b.note(fmt.Sprintf("%d deleted, s (p50)", have), sub, quantile(took, 0.5).Seconds())
	b.note(fmt.Sprintf("%d deleted, s (last)", have), sub, slices.Max(took).Seconds())
	return nil
}

// capture has a subject run a pod, and keeps its requests to the runtime: those of the floor are the same.
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
