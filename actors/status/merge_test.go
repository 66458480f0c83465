package status

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/actors/internal/finalstatus"
)

// Fields that the agent does not own stay unchanged.
func TestWhatIsNotOursStays(t *testing.T) {
	p := object("web", "u")
	p.Status.NominatedNodeName = "other"
	p.Status.QOSClass = v1.PodQOSBurstable
	p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu"}}
	p.Status.EphemeralContainerStatuses = []v1.ContainerStatus{running("debug", 0)}
	p.Status.Conditions = append(p.Status.Conditions, cond("example.com/gate", v1.ConditionFalse, -3),
		cond(v1.DisruptionTarget, v1.ConditionTrue, -1))
	before := p.DeepCopy()
	got := merge(p, statusOf(true, 0), noon)
	if !equality.Semantic.DeepEqual(p, before) {
		t.Error("an object that is shared was changed")
	}
	for _, c := range before.Status.Conditions {
		if now := condition(got, c.Type); now == nil || *now != c {
			t.Errorf("condition %s became %+v", c.Type, now)
		}
	}
	if got.NominatedNodeName != "other" || got.QOSClass != v1.PodQOSBurstable || len(got.ResourceClaimStatuses) != 1 ||
		len(got.EphemeralContainerStatuses) != 1 {
		t.Errorf("it became %+v", got)
	}
	if got.Phase != v1.PodRunning || !ready(got) || got.PodIP != "10.0.0.1" || len(got.ContainerStatuses) != 1 ||
		got.ObservedGeneration != 1 {
		t.Errorf("what is ours is not there: %+v", got)
	}
	// The same over the wire.
	after := patched(t, p, &job{uid: p.UID, from: &p.Status, to: got})
	if !equality.Semantic.DeepEqual(&after.Status, got) {
		t.Errorf("the patch makes of it\n%+v\ninstead of\n%+v", after.Status, got)
	}
}

// The agent owns the condition of a pending resize. It is removed when the resize is cancelled. A status without conditions,
// as of a held pod, does not remove it.
func TestResize_WithdrawnIsNotPending(t *testing.T) {
	p := object("web", "u")
	p.Status.Conditions = append(p.Status.Conditions, cond(v1.PodResizePending, v1.ConditionTrue, -2))
	if got := merge(p, statusOf(true, 0), noon); condition(got, v1.PodResizePending) != nil {
		t.Errorf("it is still there: %+v", got.Conditions)
	}
	if got := merge(p, &v1.PodStatus{Phase: v1.PodPending}, noon); condition(got, v1.PodResizePending) == nil {
		t.Errorf("it went: %+v", got.Conditions)
	}
}

// The agent owns the pod-level resources. A status without them, as of a rejected pod, keeps the observed ones.
func TestResourcesOfThePodAsAWhole(t *testing.T) {
	list := func(cpu string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)} }
	was := &v1.Pod{Status: v1.PodStatus{AllocatedResources: list("1"), Resources: &v1.ResourceRequirements{Requests: list("1")}}}
	wanted := &v1.PodStatus{AllocatedResources: list("2"), Resources: &v1.ResourceRequirements{Requests: list("2")}}
	for want, s := range map[string]*v1.PodStatus{"2": wanted, "1": {}} {
		got := merge(was, s, noon)
		if got.AllocatedResources.Cpu().String() != want || got.Resources.Requests.Cpu().String() != want {
			t.Errorf("allocated %v, has %v, want %s", got.AllocatedResources, got.Resources, want)
		}
	}
}

// A patch removes entries of lists that are merged by key, and sets their order.
func TestAPatchTakesOutWhatIsGone(t *testing.T) {
	p := object("web", "u")
	p.Status = *merge(p, statusOf(true, 0), noon)
	p.Status.PodIPs = append(p.Status.PodIPs, v1.PodIP{IP: "fd00::1"})
	to := p.Status.DeepCopy()
	to.PodIP, to.PodIPs = "10.0.0.2", []v1.PodIP{{IP: "10.0.0.2"}}
	to.Conditions = to.Conditions[1:]
	if after := patched(t, p, &job{uid: p.UID, from: &p.Status, to: to}); !equality.Semantic.DeepEqual(&after.Status, to) {
		t.Errorf("the patch makes of it\n%+v\ninstead of\n%+v", after.Status, *to)
	}
	patch, err := patchOf("u", &p.Status, to)
	if err != nil || !strings.Contains(string(patch), `"metadata":{"uid":"u"}`) {
		t.Errorf("%s, %v: the UID is not in it", patch, err)
	}
}

func TestTimesOfConditions(t *testing.T) {
	p := object("web", "u")
	p.Status.Conditions = append(p.Status.Conditions, cond(v1.PodReady, v1.ConditionTrue, -100),
		cond(v1.ContainersReady, v1.ConditionFalse, -100))
	want := statusOf(true, 0)
	want.Conditions[3].LastTransitionTime.Time = noon.Add(3500 * 1e6) // with a clock's precision
	got := merge(p, want, noon)
	for kind, since := range map[v1.PodConditionType]int{v1.PodReady: -100, v1.ContainersReady: 3, v1.PodInitialized: 0,
		v1.PodScheduled: -5} {
		if c := condition(got, kind); !c.LastTransitionTime.Equal(new(at(since))) {
			t.Errorf("%s is said to be %s since %s", kind, c.Status, c.LastTransitionTime)
		}
	}
}

// Each condition of the agent carries its generation (KEP-5067). The scheduler's conditions are otherwise unchanged.
func TestConditionsTellTheirGeneration(t *testing.T) {
	p := object("web", "u")
	p.Generation = 3
	p.Status.Conditions = []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionTrue, Reason: "scheduler's", ObservedGeneration: 1},
		{Type: "example.com/gate", ObservedGeneration: 1},
	}
	want := statusOf(true, 0)
	want.ObservedGeneration = 3
	for _, c := range merge(p, want, noon).Conditions {
		others := c.Type == "example.com/gate"
		if (c.ObservedGeneration == 3) == others || c.Type == v1.PodScheduled && c.Reason != "scheduler's" {
			t.Errorf("%+v", c)
		}
	}
}

func TestReadinessGates(t *testing.T) {
	for name, c := range map[string]struct {
		gate  v1.ConditionStatus
		ready bool
		says  string
	}{
		"absent": {"", false, "condition is not set"}, "false": {v1.ConditionFalse, false, "condition is False"},
		"true": {v1.ConditionTrue, true, ""},
	} {
		p := object("web", "u")
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		if c.gate != "" {
			p.Status.Conditions = append(p.Status.Conditions, cond("example.com/gate", c.gate, 0))
		}
		got := merge(p, statusOf(true, 0), noon)
		r := condition(got, v1.PodReady)
		if ready(got) != c.ready || !strings.Contains(r.Message, c.says) ||
			condition(got, v1.ContainersReady).Status != v1.ConditionTrue {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestFinalPhase_Stays(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodFailed, v1.PodSucceeded} {
		p := object("web", "u")
		p.Status.Phase, p.Status.Reason = phase, "Evicted"
		got := merge(p, statusOf(true, 0), noon)
		if got.Phase != phase || got.Reason != "Evicted" || ready(got) ||
			condition(got, v1.ContainersReady).Status != v1.ConditionFalse {
			t.Errorf("%s became %s %s, ready %v", phase, got.Phase, got.Reason, ready(got))
		}
	}
}

func TestContainersKeepTheirHistory(t *testing.T) {
	p := object("web", "u")
	old := running("main", 7)
	old.LastTerminationState = exited("", 3).State
	p.Status.ContainerStatuses = []v1.ContainerStatus{old}
	got := merge(p, statusOf(true, 2), noon).ContainerStatuses[0]
	if got.RestartCount != 7 || got.LastTerminationState.Terminated == nil || got.LastTerminationState.Terminated.ExitCode != 3 {
		t.Errorf("%+v", got)
	}
	if got := merge(p, &v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu"}, noon); len(got.ContainerStatuses) != 1 {
		t.Error("a status that knows of no containers took those away that were known")
	}
}

// The API server rejects the whole status if a container runs again that must not.
func TestNoContainerLivesAgain(t *testing.T) {
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	rule := func(action v1.ContainerRestartRuleAction, code int32) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{Action: action,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
				Values: []int32{code}}}}
	}
	const again, all = v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers
	for _, c := range []struct {
		policy v1.RestartPolicy
		own    *v1.ContainerRestartPolicy
		rules  []v1.ContainerRestartRule
		code   int32
		lives  bool
	}{
		{policy: v1.RestartPolicyNever, code: 1}, {policy: v1.RestartPolicyNever}, {policy: v1.RestartPolicyOnFailure},
		{policy: v1.RestartPolicyOnFailure, code: 1, lives: true}, {policy: v1.RestartPolicyAlways, lives: true},
		{policy: v1.RestartPolicyNever, own: &always, lives: true}, {policy: v1.RestartPolicyAlways, own: &never},
		{policy: v1.RestartPolicyNever, own: &never, rules: rule(again, 42), code: 42, lives: true},
		{policy: v1.RestartPolicyNever, own: &never, rules: rule(again, 42), code: 143},
		{policy: v1.RestartPolicyNever, own: &never, rules: rule(again, 42)},
		{policy: v1.RestartPolicyNever, own: &never, rules: rule(all, 42), code: 143, lives: true},
		// any of them may run again
	} {
		p := object("web", "u")
		p.Spec.RestartPolicy = c.policy
		p.Spec.Containers[0].RestartPolicy, p.Spec.Containers[0].RestartPolicyRules = c.own, c.rules
		p.Status.ContainerStatuses = []v1.ContainerStatus{exited("main", c.code)}
		if got := merge(p, statusOf(true, 0), noon).ContainerStatuses[0]; (got.State.Running != nil) != c.lives {
			t.Errorf("%+v: %+v", c, got.State)
		}
		p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, []v1.Container{{Name: "other"}}
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses = p.Status.ContainerStatuses, nil
		wanted := statusOf(true, 0)
		wanted.InitContainerStatuses, wanted.ContainerStatuses = wanted.ContainerStatuses, nil
		if got := merge(p, wanted, noon).InitContainerStatuses[0]; (got.State.Running != nil) != c.lives {
			t.Errorf("init, %+v: %+v", c, got.State)
		}
	}
}

func TestTheLastStatus(t *testing.T) {
	init := v1.Container{Name: "init"}
	for name, c := range map[string]struct {
		inits      []v1.Container
		initStatus []v1.ContainerStatus
		containers []v1.ContainerStatus
		phase      v1.PodPhase
		want       v1.PodPhase
		lost, left int // containers with an unknown end, and waiting ones
	}{
		"runs": {containers: []v1.ContainerStatus{running("main", 0)}, phase: v1.PodRunning, want: v1.PodFailed,
			lost: 1},
		"never began":   {containers: []v1.ContainerStatus{waiting("main")}, phase: v1.PodPending, want: v1.PodFailed, lost: 1},
		"ended well":    {containers: []v1.ContainerStatus{exited("main", 0)}, phase: v1.PodRunning, want: v1.PodSucceeded},
		"ended ill":     {containers: []v1.ContainerStatus{exited("main", 1)}, phase: v1.PodRunning, want: v1.PodFailed},
		"had ended":     {containers: []v1.ContainerStatus{exited("main", 0)}, phase: v1.PodSucceeded, want: v1.PodSucceeded},
		"nothing known": {phase: v1.PodPending, want: v1.PodFailed},
		"in init": {[]v1.Container{init}, []v1.ContainerStatus{running("init", 0)}, []v1.ContainerStatus{waiting("main")},
			v1.PodPending, v1.PodFailed, 1, 1},
		"init never ran": {[]v1.Container{init}, []v1.ContainerStatus{waiting("init")}, []v1.ContainerStatus{waiting("main")},
			v1.PodPending, v1.PodFailed, 1, 1},
		"init had ended": {[]v1.Container{init}, []v1.ContainerStatus{exited("init", 0)}, []v1.ContainerStatus{waiting("main")},
			v1.PodPending, v1.PodFailed, 1, 0},
		"second init out": {[]v1.Container{init, {Name: "two"}}, []v1.ContainerStatus{exited("init", 0), waiting("two")},
			[]v1.ContainerStatus{waiting("main")}, v1.PodPending, v1.PodFailed, 0, 2},
	} {
		p := object("web", "u")
		p.Spec.InitContainers = c.inits
		out := statusOf(true, 0)
		out.Phase, out.ContainerStatuses, out.InitContainerStatuses = c.phase, c.containers, c.initStatus
		finalstatus.Settle(&p.Spec, out, noon)
		lost, left := 0, 0
		for _, s := range append(out.ContainerStatuses, out.InitContainerStatuses...) {
			switch e := s.State.Terminated; {
			case e == nil:
				left++
			case e.Reason == "ContainerStatusUnknown" && e.ExitCode == 137:
				lost++
			}
			if s.State.Running != nil {
				t.Errorf("%s: a container runs", name)
			}
		}
		if out.Phase != c.want || lost != c.lost || left != c.left || ready(out) {
			t.Errorf("%s: phase %s, %d lost, %d waiting, ready %v", name, out.Phase, lost, left, ready(out))
		}
	}
}
