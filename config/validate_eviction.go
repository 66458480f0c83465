package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// evictionSignals are the signals that thresholds can name.
var evictionSignals = []string{
	"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
	"containerfs.available", "containerfs.inodesFree", "allocatableMemory.available", "pid.available",
}

func validateEviction(p *problems, n *Node) {
	c := n.Kubelet
	positive(p, "evictionPressureTransitionPeriod", c.EvictionPressureTransitionPeriod.Duration)
	threshold := amount(1, "positive quantity such as 100Mi")
	validSignals(p, "evictionHard", c.EvictionHard, threshold)
	validSignals(p, "evictionSoft", c.EvictionSoft, threshold)
	validSignals(p, "evictionSoftGracePeriod", c.EvictionSoftGracePeriod, func(value string) error {
		if period, err := time.ParseDuration(value); err != nil || period < 0 {
			return fmt.Errorf("must be a duration, not negative")
		}
		return nil
	})
	validSignals(p, "evictionMinimumReclaim", c.EvictionMinimumReclaim, amount(0, "quantity such as 1Gi, not negative"))
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		_, found := c.EvictionSoftGracePeriod[signal]
		p.check(found, fmt.Sprintf("evictionSoft[%s]", signal), c.EvictionSoft[signal],
			"needs a period in evictionSoftGracePeriod")
	}
}

func validSignals(p *problems, field string, said map[string]string, valid func(string) error) {
	for _, signal := range slices.Sorted(maps.Keys(said)) {
		path := fmt.Sprintf("%s[%s]", field, signal)
		if !slices.Contains(evictionSignals, signal) {
			p.add(path, said[signal], "no such signal; there are %s", strings.Join(evictionSignals, ", "))
			continue
		}
		if err := valid(said[signal]); err != nil {
			p.add(path, said[signal], "%v", err)
		}
	}
}

// amount accepts a quantity of this sign or more, or a percentage; 0% and 100% turn a threshold off.
func amount(sign int, wanted string) func(string) error {
	return func(value string) error {
		if text, ok := strings.CutSuffix(value, "%"); ok {
			number, err := strconv.ParseFloat(text, 32)
			// The negation refuses NaN too.
			if err != nil || !(number >= 0 && number <= 100) {
				return fmt.Errorf("must be a percentage between 0%% and 100%%")
			}
			return nil
		}
		if q, err := resource.ParseQuantity(value); err != nil || q.Sign() < sign {
			return fmt.Errorf("must be a %s, or a percentage", wanted)
		}
		return nil
	}
}

// validateShutdown is about graceful shutdown of the node (KEP-2000, KEP-2712).
func validateShutdown(p *problems, n *Node) {
	c := n.Kubelet
	whole, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	validPeriod(p, n, "shutdownGracePeriod", whole)
	validPeriod(p, n, "shutdownGracePeriodCriticalPods", critical)
	p.check(critical <= whole, "shutdownGracePeriodCriticalPods", critical, "must be at most shutdownGracePeriod, which is %v",
		whole)
	if len(c.ShutdownGracePeriodByPodPriority) == 0 {
		return
	}
	const path = "shutdownGracePeriodByPodPriority"
	said := fmt.Sprint(c.ShutdownGracePeriodByPodPriority)
	needsGate(p, n, path, said, "GracefulNodeShutdownBasedOnPodPriority")
	p.check(whole == 0 && critical == 0, path, said, "excludes shutdownGracePeriod and shutdownGracePeriodCriticalPods")
	for i, one := range c.ShutdownGracePeriodByPodPriority {
		p.check(one.ShutdownGracePeriodSeconds >= 0, fmt.Sprintf("%s[%d].shutdownGracePeriodSeconds", path, i),
			one.ShutdownGracePeriodSeconds, "must be at least 0")
	}
}

func validPeriod(p *problems, n *Node, path string, period time.Duration) {
	p.check(period == 0 || period >= time.Second, path, period, "must be 0 or at least 1s")
	if period > 0 {
		needsGate(p, n, path, period, "GracefulNodeShutdown")
	}
}
