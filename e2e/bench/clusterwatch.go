package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// podWatch records the events of a watch of a namespace's pods with their times.
type podWatch struct {
	mu      sync.Mutex
	ready   map[string]time.Time // by UID, the first time
	gone    map[string]time.Time
	evicted map[string]time.Time
	changed chan struct{}
	failed  error
}

func watchPods(ctx context.Context, client kubernetes.Interface, namespace string) (*podWatch, error) {
	pods := client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	// An API server ends watches now and then, and those that are slow; this one goes on where it was.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface,
			error) {
			return pods.Watch(ctx, o)
		},
	})
	if err != nil {
		return nil, err
	}
	p := &podWatch{ready: map[string]time.Time{}, gone: map[string]time.Time{}, evicted: map[string]time.Time{},
		changed: make(chan struct{}, 1)}
	go p.follow(w)
	return p, nil
}

func (p *podWatch) follow(w watch.Interface) {
	for e := range w.ResultChan() {
		now := time.Now()
		p.mu.Lock()
		if pod, ok := e.Object.(*corev1.Pod); ok {
			p.see(e.Type, pod, now)
		}
		p.mu.Unlock()
		p.tell()
	}
	p.mu.Lock()
	p.failed = errors.New("the watch of the benchmark ended")
	p.mu.Unlock()
	p.tell()
}

func (p *podWatch) see(kind watch.EventType, pod *corev1.Pod, now time.Time) {
	uid := string(pod.UID)
	if kind == watch.Deleted {
		p.gone[uid] = now
		return
	}
	// A kubelet lets some of its evicted pods end as Succeeded, without a reason or condition; no other component ends a pod
	// here.
	over := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	if _, seen := p.evicted[uid]; !seen && over && pod.DeletionTimestamp == nil {
		p.evicted[uid] = now
	}
	if _, ok := p.ready[uid]; ok {
		return
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			p.ready[uid] = now
		}
	}
}

func (p *podWatch) tell() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// await gives when each pod was first seen as asked for.
func (p *podWatch) await(ctx context.Context, seen func() map[string]time.Time, uids []string) ([]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		p.mu.Lock()
		out, err := make([]time.Time, 0, len(uids)), p.failed
		for _, uid := range uids {
			if at, ok := seen()[uid]; ok {
				out = append(out, at)
			}
		}
		p.mu.Unlock()
		if len(out) == len(uids) || err != nil {
			return out, err
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d pods were seen", len(out), len(uids))
		}
	}
}

func (p *podWatch) allReady(ctx context.Context, uids []string) ([]time.Time, error) {
	return p.await(ctx, func() map[string]time.Time { return p.ready }, uids)
}

func (p *podWatch) allGone(ctx context.Context, uids []string) ([]time.Time, error) {
	return p.await(ctx, func() map[string]time.Time { return p.gone }, uids)
}

func (p *podWatch) allEvicted(ctx context.Context, uids []string) ([]time.Time, error) {
	return p.await(ctx, func() map[string]time.Time { return p.evicted }, uids)
}

// readyOrEvicted waits until each pod is one of them, and reports whether one was evicted.
func (p *podWatch) readyOrEvicted(ctx context.Context, uids []string) (evicted bool, err error) {
	_, err = p.await(ctx, func() map[string]time.Time {
		either := maps.Clone(p.ready)
		maps.Copy(either, p.evicted)
		return either
	}, uids)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uid := range uids {
		_, was := p.evicted[uid]
		evicted = evicted || was
	}
	return evicted, err
}
