package stats

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/stats/agentmetrics"
)

func claimVolume(name, claim string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

var claimUsage = map[string]VolumeUsage{"data": {Bytes: VolumeAmount{Total: 100, Used: 40, Free: 60},
	Inodes: VolumeAmount{Total: 10, Used: 4, Free: 6}}}

// The volumes of claims are reported once per claim, as measured last. Reading requests walks of pods with claims, and of no
// others, and waits for none.
func TestTheVolumesOfClaims(t *testing.T) {
	web, other, plain, ended := pod("web", containerID1), pod("other", containerID2), pod("plain", "x"), pod("ended", "y")
	for _, p := range []*v1.Pod{web.Pod, other.Pod, ended.Pod} {
		p.Spec.Volumes = []v1.Volume{claimVolume("data", "claim")}
	}
	ended.Pod.Spec.Volumes = []v1.Volume{claimVolume("data", "of the past")}
	ended.Status.Phase = v1.PodSucceeded
	r := newRig(t, web, other, plain, ended)
	var asked []string
	r.opts.Persistent = func(_ context.Context, p *v1.Pod) (map[string]VolumeUsage, error) {
		asked = append(asked, p.Name)
		return claimUsage, nil
	}
	for _, name := range []string{"web", "other", "plain", "ended"} {
		write(t, r.opts.RootDir+"/pods/uid-"+name+"/etc-hosts", 1)
	}
	h := Handler(r.Collector, agentmetrics.New(agentmetrics.Options{NodeName: "node", Board: r.opts.Board, Kubernetes: "1.36.3"}))
	if f := families(t, get(t, h, "/metrics").Body.String())["kubelet_volume_stats_used_bytes"]; f != nil {
		t.Errorf("before anything was measured there is %v", f)
	}
	all := families(t, get(t, h, "/metrics").Body.String())
	of := map[string]string{"namespace": "default", "persistentvolumeclaim": "claim"}
	for name, want := range map[string]float64{"capacity_bytes": 100, "used_bytes": 40, "available_bytes": 60, "inodes": 10,
		"inodes_used": 4, "inodes_free": 6} {
		name = "kubelet_volume_stats_" + name
		if got := sample(t, all, name, of).GetGauge().GetValue(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
		if n := len(all[name].GetMetric()); n != 1 {
			t.Errorf("%s has %d metrics", name, n)
		}
	}
	slices.Sort(asked)
	if got := fmt.Sprint(asked); got != "[ended other web]" {
		t.Errorf("measured are %s", got)
	}
	r.clock.SetTime(begin.Add(time.Hour))
	r.actor.Clock.SetTime(begin.Add(time.Hour))
	get(t, h, "/metrics")
	if len(asked) != 6 {
		t.Errorf("an hour later measured are %v", asked)
	}
}
