package stats

import (
	"fmt"
	"net/http"
	"os"
	"path"
	"strconv"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/stats/cgroupstats"
)

// BenchmarkScrape renders each answer for a node of a hundred pods, with real cgroups without processes.
func BenchmarkScrape(b *testing.B) {
	mounts, err := cgroupstats.Mounts()
	if err != nil || os.Geteuid() != 0 || cgroupstats.Unified() {
		b.Skip("it makes cgroups of version 1, and needs root: ", err)
	}
	top := "/playlet-bench-" + strconv.Itoa(os.Getpid())
	var pods []board.Pod
	var made []string
	mkdir := func(name string) {
		for _, mount := range mounts {
			if err := os.MkdirAll(path.Join(mount, name), 0o755); err != nil {
				b.Skip("no cgroups can be made here: ", err)
			}
		}
		made = append(made, name)
	}
	b.Cleanup(func() {
		for i := len(made) - 1; i >= 0; i-- {
			for _, mount := range mounts {
				_ = os.Remove(path.Join(mount, made[i]))
			}
		}
	})
	mkdir(top)
	for i := range 100 {
		inside, sandbox := fmt.Sprintf("%064x", i), fmt.Sprintf("%064x", 1000+i)
		p := pod("web"+strconv.Itoa(i), inside)
		in := path.Join(top, "poduid-web"+strconv.Itoa(i))
		mkdir(in)
		mkdir(path.Join(in, inside))
		mkdir(path.Join(in, sandbox))
		pods = append(pods, p)
	}
	r := newRig(b, pods...)
	r.opts.Kubepods = func() string { return top }
	c := NewCollector(r.opts)
	c.Attach(r.tell)
	h := Handler(c, nil)
	for _, at := range []string{"/metrics/cadvisor", "/stats/summary", "/metrics/resource"} {
		for _, age := range []time.Duration{time.Minute, 0} {
			b.Run(fmt.Sprintf("%s/anew=%v", at, age > 0), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r.clock.SetTime(r.clock.Now().Add(age))
					req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, at, nil)
					if err != nil {
						b.Fatal(err)
					}
					req.Header.Set("Accept-Encoding", "gzip")
					h.ServeHTTP(nopWriter{}, req)
				}
			})
		}
	}
}
