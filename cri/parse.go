package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// LabelError is a label or annotation that is not there or cannot be read.
type LabelError struct {
	Key   string
	Value string
	Err   error // nil when the key is missing
}

// Error implements error.
func (e *LabelError) Error() string {
	if e.Err == nil {
		return e.Key + " is missing"
	}
	return fmt.Sprintf("%s %q: %v", e.Key, e.Value, e.Err)
}

// Unwrap gives errors.Is the cause.
func (e *LabelError) Unwrap() error { return e.Err }

// ContainerInfo is what a container's labels and annotations say of it.
type ContainerInfo struct {
	ContainerName            string
	PodName                  string
	PodNamespace             string
	PodUID                   types.UID
	Hash                     uint64 // KubeletHash when it was created
	SpecHash                 string // "" when a kubelet created it
	RestartCount             uint32
	DeletionGracePeriod      *int64 // seconds, nil when not set
	TerminationGracePeriod   *int64 // seconds, nil when not set
	TerminationMessagePath   string
	TerminationMessagePolicy v1.TerminationMessagePolicy
	PreStop                  *v1.LifecycleHandler
	Ports                    []v1.ContainerPort
	Backoff                  string // AnnotationBackoff, "" when not set
}

// ParseContainer reads a container's labels and annotations. What can be read is
// always returned; the error joins a *LabelError for each value that cannot. A
// container without a pod's UID was not made for a pod (crictl run).
func ParseContainer(labels, annotations map[string]string) (ContainerInfo, error) {
	l, a := reader{values: labels}, reader{values: annotations}
	info := ContainerInfo{
		ContainerName:            l.text(LabelContainerName),
		PodName:                  l.text(LabelPodName),
		PodNamespace:             l.text(LabelPodNamespace),
		PodUID:                   types.UID(l.text(LabelPodUID)),
		Hash:                     a.number(AnnotationHash, 16, 64),
		RestartCount:             uint32(a.number(AnnotationRestartCount, 10, 31)), //nolint:gosec // 31 bits were read
		TerminationMessagePath:   a.text(AnnotationTerminationMessagePath),
		TerminationMessagePolicy: v1.TerminationMessagePolicy(a.text(AnnotationTerminationMessagePolicy)),
		DeletionGracePeriod:      a.seconds(AnnotationDeletionGracePeriod),
		TerminationGracePeriod:   a.seconds(AnnotationTerminationGracePeriod),
		SpecHash:                 annotations[AnnotationSpecHash],
		Backoff:                  annotations[AnnotationBackoff],
	}
	var handler v1.LifecycleHandler
	if a.json(AnnotationPreStopHandler, &handler) {
		info.PreStop = &handler
	}
	var ports []v1.ContainerPort
	if a.json(AnnotationPorts, &ports) {
		info.Ports = ports
	}
	return info, errors.Join(append(l.problems, a.problems...)...)
}

// reader takes values out of a map and remembers what was wrong with them.
type reader struct {
	values   map[string]string
	problems []error
}

func (r *reader) text(key string) string {
	value, ok := r.values[key]
	if !ok {
		r.problems = append(r.problems, &LabelError{Key: key})
	}
	return value
}

func (r *reader) number(key string, base, bits int) uint64 {
	value, ok := r.values[key]
	if !ok {
		r.problems = append(r.problems, &LabelError{Key: key})
		return 0
	}
	n, err := strconv.ParseUint(value, base, bits)
	if err != nil {
		r.problems = append(r.problems, &LabelError{Key: key, Value: value, Err: err})
		return 0
	}
	return n
}

// seconds reads an optional number of seconds.
func (r *reader) seconds(key string) *int64 {
	value, ok := r.values[key]
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		r.problems = append(r.problems, &LabelError{Key: key, Value: value, Err: err})
		return nil
	}
	return &n
}

// json reads an optional JSON value and reports whether it is there and whole.
func (r *reader) json(key string, into any) bool {
	value, ok := r.values[key]
	if !ok {
		return false
	}
	if err := json.Unmarshal([]byte(value), into); err != nil {
		r.problems = append(r.problems, &LabelError{Key: key, Value: value, Err: err})
		return false
	}
	return true
}
