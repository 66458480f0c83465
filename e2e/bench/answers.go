package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answers measures each answer: its time, its size and the subject's allocations. The figures expire between two requests of one
// path, so that they are gathered again.
func (b *clusterBench) answers(ctx context.Context, sub *subject, client *http.Client, n int) error {
	const times, apart = 6, 11 * time.Second
	for _, path := range []string{"/metrics/cadvisor", "/stats/summary"} {
		var took []time.Duration
		var mallocs, allocated []float64
		size := int64(0)
		for i := range times {
			if i > 0 {
				time.Sleep(apart)
			}
			before, err := readHeap(ctx, client, sub)
			if err != nil {
				return err
			}
			between, err := readHeap(ctx, client, sub)
			if err != nil {
				return err
			}
			began := time.Now()
			if size, err = get(ctx, client, sub.api.Host+path, io.Discard); err != nil {
				return err
			}
			passed := time.Since(began)
			after, err := readHeap(ctx, client, sub)
			if err != nil {
				return err
			}
			if i == 0 { // it has nothing that another could have left
				continue
			}
			took = append(took, passed)
			// Reading the heap allocates, too.
			mallocs = append(mallocs, after.mallocs-between.mallocs-(between.mallocs-before.mallocs))
			allocated = append(allocated, after.bytes-between.bytes-(between.bytes-before.bytes))
		}
		what := fmt.Sprintf("%s with %d pods, ", path, n)
		b.note(what+"ms (p50)", sub, float64(quantile(took, 0.5).Microseconds())/1000)
		b.note(what+"KiB", sub, float64(size)/1024)
		slices.Sort(mallocs)
		slices.Sort(allocated)
		b.note(what+"allocations", sub, mallocs[len(mallocs)/2])
		b.note(what+"KiB allocated", sub, allocated[len(allocated)/2]/1024)
	}
	return nil
}

// heap is the total of a process's allocations.
type heap struct{ mallocs, bytes float64 }

// readHeap reads the subject's own heap metrics.
func readHeap(ctx context.Context, client *http.Client, sub *subject) (heap, error) {
	var text bytes.Buffer
	if _, err := get(ctx, client, sub.api.Host+"/metrics", &text); err != nil {
		return heap{}, err
	}
	var h heap
	found := 0
	for lines := bufio.NewScanner(&text); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		to := map[string]*float64{"go_memstats_mallocs_total": &h.mallocs, "go_memstats_alloc_bytes_total": &h.bytes}[name]
		if to == nil {
			continue
		}
		var err error
		if *to, err = strconv.ParseFloat(value, 64); err != nil {
			return heap{}, err
		}
		found++
	}
	if found != 2 {
		return heap{}, errors.New("/metrics does not tell of the heap")
	}
	return h, nil
}

// logEnd is the text of the last line of a log that is followed.
const logEnd = "this is the end of the log"

// follow measures how fast a log of 50 MB is followed that is there already, beside tail -f of its file.
func (b *clusterBench) follow(ctx context.Context, sub *subject, client *http.Client, n int) error {
	list, err := b.cluster.Admin.CoreV1().Pods(b.namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(list.Items) == 0 {
		return errors.Join(err, errors.New("there is no pod whose log is to be followed"))
	}
	pod := &list.Items[0]
	file := filepath.Join(sub.logs, fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID), pod.Spec.Containers[0].Name, "0.log")
	size, err := lengthen(file)
	if err != nil {
		return err
	}
	through, err := until(ctx, func(ctx context.Context, to io.Writer) error {
		_, err := get(ctx, client, logAddress(sub, pod), to)
		return err
	})
	if err != nil {
		return err
	}
	tail, err := until(ctx, func(ctx context.Context, to io.Writer) error {
		cmd := exec.CommandContext(ctx, "tail", "-c", "+1", "-f", file)
		cmd.Stdout = to
		return cmd.Run()
	})
	if err != nil {
		return err
	}
	b.note(fmt.Sprintf("log followed with %d pods, s", n), sub, through.Seconds())
	fmt.Printf("  %-9s %-52s %10.3f\n", sub.name, "... of the rate of tail -f", tail.Seconds()/through.Seconds())
	fmt.Printf("  %-9s %-52s %10.3f\n", sub.name, "... MiB/s", float64(size)/(1<<20)/through.Seconds())
	return nil
}

func logAddress(sub *subject, pod *corev1.Pod) string {
	return fmt.Sprintf("%s/containerLogs/%s/%s/%s?follow=true", sub.api.Host, pod.Namespace, pod.Name, pod.Spec.Containers[0].Name)
}

// lengthen adds lines to a container's log, as a runtime would, and gives the file's size.
func lengthen(file string) (int64, error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}
	w := bufio.NewWriter(f)
	at := time.Now().UTC().Format(time.RFC3339Nano)
	for i := range 400_000 {
		_, err = fmt.Fprintf(w, "%s stdout F line %d %s\n", at, i, strings.Repeat("x", 80))
	}
	_, err2 := fmt.Fprintf(w, "%s stdout F %s\n", at, logEnd)
	if err := errors.Join(err, err2, w.Flush()); err != nil {
		return 0, errors.Join(err, f.Close())
	}
	info, err := f.Stat()
	return info.Size(), errors.Join(err, f.Close())
}

// until runs something that writes, ends it when the log's end has been written, and gives the time until then.
func until(ctx context.Context, run func(ctx context.Context, to io.Writer) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	e := &endOfLog{cancel: cancel}
	began := time.Now()
	err := run(ctx, e)
	if e.at.IsZero() {
		return 0, errors.Join(errors.New("the end of the log did not come"), err)
	}
	return e.at.Sub(began), nil
}

// endOfLog cancels when the last line has come.
type endOfLog struct {
	cancel context.CancelFunc
	at     time.Time
	last   []byte
}

// Write implements io.Writer.
func (e *endOfLog) Write(p []byte) (int, error) {
	e.last = append(e.last, p[max(0, len(p)-len(logEnd)):]...)
	if bytes.Contains(e.last, []byte(logEnd)) || bytes.HasSuffix(p, []byte(logEnd+"\n")) {
		if e.at.IsZero() {
			e.at = time.Now()
		}
		e.cancel()
	}
	e.last = e.last[max(0, len(e.last)-len(logEnd)):]
	return len(p), nil
}
