// Command bench measures the agent beside the floor: the same CRI calls made directly, with no agent, in the same run
// on the same runtime. It prints times, ratios, processor seconds and memory, and judges nothing.
//
//	go run ./e2e/bench [-pods 50] [-singles 10] [-rounds 2] [-waiters 100]
//	go run ./e2e/bench -cluster [-kubelet] [-binary FILE] [-only NAME] [-crowds 20,90] [-idles 0,50,100]
//	     [-answered 110,500] [-scraped 20,100] [-resizes 20]
//	go run ./e2e/bench -cluster [-kubelet] -evictions 5 [-overuses inodes,images]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/playlet-dev/playlet/e2e/stack"
)

var (
	burst   = flag.Int("pods", 50, "how many pods are written at once")
	singles = flag.Int("singles", 6, "how many pods are written one after another, in each round")
	crowd   = flag.Int("waiters", 100, "how many pods wait for one pull; with -pods 0, that alone is measured")
	rounds  = flag.Int("rounds", 3, "how often each measurement is made; floor and agent take turns")
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == bombCommand {
		os.Exit(bomb())
	}
	if len(os.Args) == 7 && os.Args[1] == floorCommand {
		fmt.Fprintln(os.Stderr, "floor:", floorAgent(os.Args[2:]))
		os.Exit(1)
	}
	flag.Parse()
	os.Exit(stack.Main(func() int {
		measure := run
		if *inCluster {
			measure = runCluster
		}
		if err := measure(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
		return 0
	}))
}

func run(ctx context.Context) error {
	s, err := stack.New(ctx, stack.Options{})
	if err != nil {
		return err
	}
	defer s.Stop() //nolint:errcheck // the namespaces go with the process
	agent, err := s.NewAgent()
	if err != nil {
		return err
	}
	b := &bench{stack: s, agent: agent}
	if err := b.watch(ctx); err != nil {
		return err
	}
	if err := b.waiters(ctx); err != nil || *burst == 0 {
		return err
	}
	if err := b.capture(ctx); err != nil {
		return err
	}
	if err := b.oneAtATime(ctx); err != nil {
		return err
	}
	if err := b.atOnce(ctx); err != nil {
		return err
	}
	return b.empty(ctx)
}

// capture runs a pod on the agent, and records its calls to the runtime for the floor.
func (b *bench) capture(ctx context.Context) error {
	b.whenUp = func() error {
		list, err := b.stack.Containers(ctx)
		if err != nil || len(list) != 1 {
			return fmt.Errorf("%d containers: %w", len(list), err)
		}
		b.like, err = b.stack.Capture(ctx, list[0].Labels[stack.UIDLabel])
		return err
	}
	defer func() { b.whenUp = nil }()
	return b.withAgent(ctx, func() error {
		_, err := b.pods(ctx, "template", 1)
		return err
	})
}

// empty measures an agent that has nothing to do.
func (b *bench) empty(ctx context.Context) error {
	return b.withAgent(ctx, func() error {
		before, err := usage(b.agent.PID())
		if err != nil {
			return err
		}
		const idle = 10 * time.Second
		time.Sleep(idle)
		after, err := usage(b.agent.PID())
		fmt.Printf("agent, with no pods: %.1f MiB resident (%.1f anonymous), %.4f cores idle\n", after.rss, after.anon,
			(after.cpu-before.cpu)/idle.Seconds())
		return err
	})
}

// oneAtATime measures pods that are alone: from the manifest's rename to the runtime's word that the container started.
func (b *bench) oneAtATime(ctx context.Context) error {
	var floor, agent []time.Duration
	for range 2 * *rounds {
		times, _, err := b.stack.Floor(ctx, b.like, *singles, 1)
		if err != nil {
			return err
		}
		for _, t := range times {
			floor = append(floor, t.Own())
		}
		if err := b.withAgent(ctx, func() error {
			for i := range *singles {
				took, err := b.pods(ctx, fmt.Sprintf("single-%d", i), 1)
				if err != nil {
					return err
				}
				agent = append(agent, took...)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	fmt.Printf("one at a time, %d pods:      floor %s   agent %s   ratio %.2f (p50), %.2f (p90)\n",
		len(agent), spread(floor), spread(agent), ratio(agent, floor, 0.5), ratio(agent, floor, 0.9))
	return nil
}

// atOnce measures a burst beside the floor's best degree of parallelism, the one with the best median.
func (b *bench) atOnce(ctx context.Context) error {
	floor, agent := map[int][]burstTimes{}, []burstTimes{}
	for range *rounds {
		for _, parallel := range []int{2, 4, 8} {
			times, _, err := b.stack.Floor(ctx, b.like, *burst, parallel)
			if err != nil {
				return err
			}
			var ends []time.Duration
			for _, t := range times {
				ends = append(ends, t.Started)
			}
			fmt.Printf("at once, %d pods, floor %d at a time: %s\n", *burst, parallel, spread(ends))
			floor[parallel] = append(floor[parallel], timesOf(ends))
		}
		err := b.withAgent(ctx, func() error {
			times, err := b.burst(ctx)
			agent = append(agent, times)
			return err
		})
		if err != nil {
			return err
		}
	}
	of, best, with := median(agent), burstTimes{}, 0
	for parallel, times := range floor {
		if m := median(times); with == 0 || m.last < best.last {
			best, with = m, parallel
		}
	}
	fmt.Printf("at once, %d pods, medians of %d rounds: floor (%d at a time) p50 %s last %s   agent p50 %s last %s   ratio %.2f (last), %.2f (p50)\n",
		*burst, *rounds, with, best.p50.Round(time.Millisecond), best.last.Round(time.Millisecond),
		of.p50.Round(time.Millisecond),
		of.last.Round(time.Millisecond), float64(of.last)/float64(best.last), float64(of.p50)/float64(best.p50))
	return nil
}

// burstTimes is when half of the pods of a burst, and when all of them, had started.
type burstTimes struct{ p50, last time.Duration }

func timesOf(ends []time.Duration) burstTimes {
	return burstTimes{p50: quantile(ends, 0.5), last: slices.Max(ends)}
}

// median returns the median of each figure.
func median(all []burstTimes) burstTimes {
	var p50, last []time.Duration
	for _, t := range all {
		p50, last = append(p50, t.p50), append(last, t.last)
	}
	return burstTimes{p50: quantile(p50, 0.5), last: quantile(last, 0.5)}
}

func (b *bench) burst(ctx context.Context) (burstTimes, error) {
	before, err := usage(b.agent.PID())
	if err != nil {
		return burstTimes{}, err
	}
	var full figures
	b.whenUp = func() error { full, err = usage(b.agent.PID()); return err }
	took, err := b.pods(ctx, "burst", *burst)
	b.whenUp = nil
	if err != nil {
		return burstTimes{}, err
	}
	fmt.Printf("at once, %d pods, agent:              %s\n", *burst, spread(took))
	fmt.Printf("agent, with %d pods: %.1f MiB resident (%.1f anonymous), %.2f CPU seconds for the burst\n",
		*burst, full.rss, full.anon, full.cpu-before.cpu)
	return timesOf(took), nil
}

func quantile(d []time.Duration, q float64) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

func ratio(a, b []time.Duration, q float64) float64 {
	return float64(quantile(a, q)) / float64(quantile(b, q))
}

func spread(d []time.Duration) string {
	return fmt.Sprintf("p50 %s p90 %s last %s", quantile(d, 0.5).Round(time.Millisecond),
		quantile(d, 0.9).Round(time.Millisecond), slices.Max(d).Round(time.Millisecond))
}
