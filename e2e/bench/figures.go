package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/playlet-dev/playlet/e2e/isolate"
)

var (
	answered = flag.String("answered", "110",
		"with -cluster: with how many pods the answers of the node's API are measured; 500 take some minutes; empty: none")
	scraped = flag.String("scraped", "20,100",
		"with -cluster: with how many pods it is measured what it takes to be scraped; empty: none")
	scrapedFor = flag.Duration("scraped-for", time.Minute, "with -cluster: for how long the node is scraped")
	profiles   = flag.String("profiles", "", "with -cluster: the folder for profiles of CPU and heap; none when empty")
)

// scrapeEvery is how often monitoring asks.
const scrapeEvery = 15 * time.Second

// scrapes are the paths read by monitoring: cAdvisor's metrics and the summary by Prometheus and dashboards, the last by
// metrics-server.
var scrapes = []string{"/metrics/cadvisor", "/stats/summary", "/metrics/resource"}

// api is the node's API of an agent on that port, asked as an administrator.
func (b *clusterBench) api(t *owner, port any) *rest.Config {
	cert, key := b.cluster.Certificate(t, "bench:administrator", "system:masters")
	return &rest.Config{
		Host: "https://" + net.JoinHostPort(isolate.NodeIP, fmt.Sprint(port)), QPS: -1, Timeout: waitLimit,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true, CertFile: cert, KeyFile: key}, // its certificate is self-signed
	}
}

// figures measures the answers of the node's API, commands and logs through it, and the subject's usage while it is scraped.
func (b *clusterBench) figures(ctx context.Context, sub *subject) error {
	type step func(context.Context, *subject, *http.Client, int) error
	steps := map[int][]step{}
	for _, of := range []struct {
		sizes string
		steps []step
	}{{*answered, []step{b.answers, b.execs, b.follow}}, {*scraped, []step{b.scrape}}} {
		if of.sizes == "" {
			continue
		}
		sizes, err := numbers(of.sizes)
		if err != nil {
			return err
		}
		for _, n := range sizes {
			steps[n] = append(steps[n], of.steps...)
		}
	}
	client, err := rest.HTTPClientFor(sub.api)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	have := 0
	for _, n := range slices.Sorted(maps.Keys(steps)) {
		uids, err := b.create(ctx, sub, n-have)
		if err != nil {
			return err
		}
		have = n
		if _, err := b.pods.allReady(ctx, uids); err != nil {
			return err
		}
		for _, step := range steps[n] {
			if err := step(ctx, sub, client, n); err != nil {
				return err
			}
		}
	}
	return b.clear(ctx)
}

func get(ctx context.Context, client *http.Client, where string, to io.Writer) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(to, resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s: %s", where, resp.Status))
	}
	return n, errors.Join(err, resp.Body.Close())
}

// execs measures a command in a container, from the request to its exit code.
func (b *clusterBench) execs(ctx context.Context, sub *subject, _ *http.Client, n int) error {
	list, err := b.cluster.Admin.CoreV1().Pods(b.namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(list.Items) == 0 {
		return errors.Join(err, errors.New("there is no pod to run a command in"))
	}
	pod := &list.Items[0]
	asked := url.Values{"output": {"1"}, "error": {"1"}, "command": {"/hello", "args", "done", "--", "exit", "0"}}
	to, err := url.Parse(fmt.Sprintf("%s/exec/%s/%s/%s?%s", sub.api.Host, pod.Namespace, pod.Name, pod.Spec.Containers[0].Name,
		asked.Encode()))
	if err != nil {
		return err
	}
	var took []time.Duration
	for range 10 {
		began := time.Now()
		e, err := remotecommand.NewSPDYExecutor(sub.api, http.MethodPost, to)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: io.Discard})
		if err != nil || out.String() != "done\n" {
			return fmt.Errorf("a command in pod %s said %q: %w", pod.Name, out.String(), err)
		}
		took = append(took, time.Since(began))
	}
	b.note(fmt.Sprintf("exec with %d pods, ms (p50)", n), sub, float64(quantile(took, 0.5).Microseconds())/1000)
	return nil
}

// scrape measures the subject's usage while nothing happens and its figures are read as by monitoring.
func (b *clusterBench) scrape(ctx context.Context, sub *subject, client *http.Client, n int) error {
	before, err := usage(sub.pid())
	if err != nil {
		return err
	}
	profiled := b.profile(ctx, sub, n)
	began := time.Now()
	for time.Since(began) < *scrapedFor {
		for _, path := range scrapes {
			if _, err := get(ctx, client, sub.api.Host+path, io.Discard); err != nil {
				return err
			}
		}
		time.Sleep(scrapeEvery)
	}
	after, err := usage(sub.pid())
	if err != nil {
		return err
	}
	what := fmt.Sprintf("scraped with %d pods, ", n)
	b.note(what+"cores", sub, (after.cpu-before.cpu)/time.Since(began).Seconds())
	b.note(what+"resident, MiB", sub, after.rss)
	b.note(what+"anonymous, MiB", sub, after.anon)
	return <-profiled
}

// profile keeps the subject's CPU profile while it is scraped, and its heap afterwards.
func (b *clusterBench) profile(ctx context.Context, sub *subject, n int) <-chan error {
	done := make(chan error, 1)
	go func() {
		name := fmt.Sprintf("scraped-%d", n)
		err := b.keepProfile(ctx, sub, name, fmt.Sprintf("profile?seconds=%.0f", scrapedFor.Seconds()))
		done <- errors.Join(err, b.keepProfile(ctx, sub, name, "heap?gc=1"))
	}()
	return done
}

// keepProfile writes one of the subject's profiles to the folder of profiles. The floor has none.
func (b *clusterBench) keepProfile(ctx context.Context, sub *subject, name, query string) error {
	if *profiles == "" || sub.least {
		return nil
	}
	client, err := rest.HTTPClientFor(sub.api)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	kind, _, _ := strings.Cut(query, "?")
	f, err := os.Create(filepath.Join(*profiles, sub.name+"-"+name+"."+kind))
	if err != nil {
		return err
	}
	_, err = get(ctx, client, sub.api.Host+"/debug/pprof/"+query, f)
	return errors.Join(err, f.Close())
}
