package cpus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/topology"
	"github.com/playlet-dev/playlet/messages"
)

// Fit releases the CPUs of a pod's containers that request another number of them.
func (m *Manager) Fit(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	uid := string(pod.UID)
	if m.static == nil || m.given[uid] == nil {
		return
	}
	if next := m.given.fitting(pod); len(next[uid]) < len(m.given[uid]) {
		m.change(next)
		m.file.FlushLater()
	}
}

// Hints returns the hints for a container, or for the whole pod if it is nil.
func (m *Manager) Hints(pod *v1.Pod, c *v1.Container) []topology.Request {
	if m.static == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.static.Hints(m.given, pod, c)
}

// Allocate gives a container its exclusive CPUs, if possible from the nodes of the hint. One that has its CPUs keeps them.
func (m *Manager) Allocate(_ context.Context, pod *v1.Pod, c *v1.Container, hint topology.Result) error {
	if m.static == nil || Exclusive(pod, c) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	cores := m.static.options.FullCores
	next, err := m.static.Allocate(m.given, pod, c, hint)
	if _, changed := errors.AsType[topology.ChangedError](err); changed {
		return err
	}
	metrics.PinningRequests.WithLabelValues().Inc()
	if err != nil {
		metrics.PinningErrors.WithLabelValues().Inc()
		if cores {
			metrics.Unaligned.WithLabelValues(metrics.ByContainer, metrics.PhysicalCPU).Inc()
		}
		refusal, _ := errors.AsType[Refusal](err)
		return m.explained(string(pod.UID), refusal)
	}
	if cores { // guaranteed by full-pcpus-only
		metrics.Aligned.WithLabelValues(metrics.ByContainer, metrics.PhysicalCPU).Inc()
	}
	set := next[string(pod.UID)][c.Name]
	if _, before := m.given[string(pod.UID)][c.Name]; !before && len(m.static.topology.sizes(set.List(), cache)) == 1 {
		metrics.Aligned.WithLabelValues(metrics.ByContainer, metrics.UncoreCache).Inc()
	}
	m.change(next)
	return nil
}

// Commit writes the assignments to the disk.
func (m *Manager) Commit() error {
	if m.static == nil {
		return nil
	}
	if err := m.file.Flush(); err != nil {
		return fmt.Errorf("failed to write checkpoint file %q: %w", File, err)
	}
	return nil
}

// refusalError is a Refusal with its cause.
type refusalError struct {
	Refusal
	cause messages.Cause
}

// Cause implements messages.CauseError.
func (r refusalError) Cause() messages.Cause { return r.cause }

// Unwrap returns the Refusal.
func (r refusalError) Unwrap() error { return r.Refusal }

// explained adds the cause: the requested and the free CPUs, and the pods that hold the others. The caller holds mu.
func (m *Manager) explained(uid string, r Refusal) error {
	all, usable := m.given.All(), m.static.Allocatable()
	others := m.given.Keep(func(other string) bool { return other != uid })
	detail := fmt.Sprintf("container %s requests %d, and %d of %d are free", r.Container, r.Requested,
		usable.Difference(all).Size(), usable.Size())
	var holders []string
	for uid, has := range others {
		name := m.names[uid]
		if name == "" {
			name = "the pod with UID " + uid
		}
		holders = append(holders, fmt.Sprintf("%s has %d", name, Assignments{"": has}.All().Size()))
	}
	slices.Sort(holders)
	if r.Others > 0 {
		holders = append(holders, fmt.Sprintf("other containers of the pod have %d", r.Others))
	}
	if len(holders) > 0 {
		detail += "; " + strings.Join(holders, ", ")
	}
	code := messages.CauseNoCPUs
	if r.Reason == ReasonAlignment {
		code = messages.CauseNoCores
		detail = fmt.Sprintf("a core has %d CPUs; %s", m.static.topology.PerCore(), detail)
	}
	return refusalError{r, messages.Cause{Code: code, Detail: detail, Text: r.Message}}
}
