// Command bench measures the agent beside the floor: the same CRI calls made directly, with no agent, in the same run
// on the same runtime. It prints times, ratios, processor seconds and memory, and judges nothing.
//
//	go run ./e2e/bench [-pods 50] [-singles 10] [-rounds 2]
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
	singles = flag.Int("singles", 10, "how many pods are written one after another, in each round")
	rounds  = flag.Int("rounds", 2, "how often each measurement is made; floor and agent take turns")
)

func main() {
	flag.Parse()
	os.Exit(stack.Main(func() int {
		if err := run(context.Background()); err != nil {
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
	if err := b.oneAtATime(ctx); err != nil {
		return err
	}
	if err := b.atOnce(ctx); err != nil {
		return err
	}
	return b.empty(ctx)
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
		fmt.Printf("agent, with no pods: %.1f MiB resident (%.1f anonymous), %.4f cores idle\n", after.rss, after.anon, (after.cpu-before.cpu)/idle.Seconds())
		return err
	})
}

// oneAtATime measures pods that are alone: from the manifest's rename to the runtime's word that the container started.
func (b *bench) oneAtATime(ctx context.Context) error {
	var floor, agent []time.Duration
	for range *rounds {
		times, _, err := b.stack.Floor(ctx, *singles, 1)
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

// atOnce measures a burst beside the best degree of parallelism of the floor.
func (b *bench) atOnce(ctx context.Context) error {
	for range *rounds {
		var best []time.Duration
		for _, parallel := range []int{2, 4, 8} {
			times, _, err := b.stack.Floor(ctx, *burst, parallel)
			if err != nil {
				return err
			}
			var ends []time.Duration
			for _, t := range times {
				ends = append(ends, t.Started)
			}
			fmt.Printf("at once, %d pods, floor %d at a time: %s\n", *burst, parallel, spread(ends))
			if best == nil || slices.Max(ends) < slices.Max(best) {
				best = ends
			}
		}
		if err := b.withAgent(ctx, func() error { return b.burst(ctx, best) }); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) burst(ctx context.Context, best []time.Duration) error {
	before, err := usage(b.agent.PID())
	if err != nil {
		return err
	}
	var full figures
	b.whenUp = func() error { full, err = usage(b.agent.PID()); return err }
	took, err := b.pods(ctx, "burst", *burst)
	b.whenUp = nil
	if err != nil {
		return err
	}
	fmt.Printf("at once, %d pods, agent:              %s   ratio %.2f (last), %.2f (p50)\n",
		*burst, spread(took), ratio(took, best, 1), ratio(took, best, 0.5))
	fmt.Printf("agent, with %d pods: %.1f MiB resident (%.1f anonymous), %.2f CPU seconds for the burst\n",
		*burst, full.rss, full.anon, full.cpu-before.cpu)
	return nil
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
