package admission

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// aNode has two processors, 4 Gi, five pods, and one piece of an extended resource.
func aNode() *Node {
	return &Node{
		Object: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{
			v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64", "disk": "ssd", "cpus": "2",
		}}},
		Allocatable: v1.ResourceList{
			"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi"), "ephemeral-storage": resource.MustParse("10Gi"),
			"pods": resource.MustParse("5"), "hugepages-2Mi": resource.MustParse("64Mi"),
			"example.com/gpu": resource.MustParse("1"),
		},
	}
}

// aPod is one of the API server, from its spec and, before a line "---", its metadata.
func aPod(t *testing.T, text string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"}}
	if meta, spec, ok := strings.Cut(text, "\n---\n"); ok {
		if err := yaml.UnmarshalStrict([]byte(meta), &pod.ObjectMeta); err != nil {
			t.Fatal(err)
		}
		text = spec
	}
	if err := yaml.UnmarshalStrict([]byte(text), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	return pod
}

func asks(requests string) string {
	return "containers: [{name: c, resources: {requests: {" + requests + "}}}]"
}

const (
	static   = "annotations: {kubernetes.io/config.source: file}\n---\n"
	critical = "priority: 2000000000\n"
)

// condition and taint change the node.
func condition(of v1.NodeConditionType) func(*Node) {
	return func(n *Node) { n.Under = append(n.Under, of) }
}

func taint(effect v1.TaintEffect) func(*Node) {
	return func(n *Node) { n.Object.Spec.Taints = []v1.Taint{{Key: "k", Value: "v", Effect: effect}} }
}

// restartsAll is the spec of a pod with a rule that restarts all containers.
const restartsAll = "initContainers: [{name: i, restartPolicyRules: [{action: RestartAllContainers}]}]"

var tableOfReasons = map[string]struct {
	node   func(*Node)
	others []string
	pod    string
	reason string // empty: admitted
	says   string
}{
	"nothing asked for": {pod: "containers: [{name: c}]"},
	"all there is":      {pod: asks("cpu: 2, memory: 4Gi, ephemeral-storage: 10Gi, hugepages-2Mi: 64Mi, example.com/gpu: 1")},
	"beside another":    {others: []string{asks("cpu: 1500m")}, pod: asks("cpu: 500m")},
	"cpu": {others: []string{asks("cpu: 1500m")}, pod: asks("cpu: 501m"), reason: "OutOfcpu",
		says: "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000"},
	"memory": {others: []string{asks("memory: 1Gi")}, pod: asks("memory: 3221225473"), reason: "OutOfmemory",
		says: "memory, requested: 3221225473, used: 1073741824, capacity: 4294967296"},
	"ephemeral storage": {pod: asks("ephemeral-storage: 11Gi"), reason: "OutOfephemeral-storage",
		says: "ephemeral-storage, requested: 11811160064, used: 0, capacity: 10737418240"},
	"huge pages":         {pod: asks("hugepages-2Mi: 66Mi"), reason: "OutOfhugepages-2Mi", says: "capacity: 67108864"},
	"no such huge pages": {pod: asks("hugepages-1Gi: 1Gi"), reason: "OutOfhugepages-1Gi", says: "capacity: 0"},
	"extended resource": {others: []string{asks("example.com/gpu: 1")}, pod: asks("example.com/gpu: 1"),
		reason: "OutOfexample.com/gpu", says: "requested: 1, used: 1, capacity: 1"},
	"of the cluster":    {pod: asks("example.com/licence: 5")},
	"cpu is told first": {pod: asks("cpu: 3, memory: 5Gi, example.com/gpu: 2"), reason: "OutOfcpu"},
	"pods": {others: []string{"{}", "{}", "{}", "{}", "{}"}, pod: "containers: [{name: c}]", reason: "OutOfpods",
		says: "pods, requested: 1, used: 5, capacity: 5"},
	"nothing is known": {node: func(n *Node) { n.Allocatable, n.Partial = nil, true },
		pod: asks("cpu: 100, hugepages-1Gi: 1Gi, ephemeral-storage: 1Ti")},
	"requests unbound": {node: func(n *Node) { n.UnboundRequests = true }, pod: asks("cpu: 100")},
	"pods are bound": {node: func(n *Node) { n.UnboundRequests = true }, others: []string{"{}", "{}", "{}", "{}", "{}"},
		pod: "{}", reason: "OutOfpods"},

	"init container": {pod: "initContainers: [{name: i, resources: {requests: {cpu: 2001m}}}]\n" + asks("cpu: 1"),
		reason: "OutOfcpu", says: "requested: 2001"},
	"they take turns": {pod: "initContainers: [{name: i, resources: {requests: {cpu: 2}}}, {name: j, resources: {requests: {cpu: 2}}}]\n" + asks("cpu: 2")},
	"sidecar": {pod: "initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}]\n" +
		asks("cpu: 1001m"), reason: "OutOfcpu", says: "requested: 2001"},
	"beside sidecar": {pod: "initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}, {name: i, resources: {requests: {cpu: 1001m}}}]\n" + asks("cpu: 1"), reason: "OutOfcpu", says: "requested: 2001"},
	"of the pod": {pod: "resources: {requests: {cpu: 2001m}}\n" + asks("cpu: 1"), reason: "OutOfcpu",
		says: "requested: 2001"},
	"overhead":    {pod: "overhead: {cpu: 1m}\n" + asks("cpu: 2"), reason: "OutOfcpu", says: "requested: 2001"},
	"others' too": {others: []string{"overhead: {cpu: 1}\ninitContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}]\n" + asks("memory: 1")}, pod: asks("cpu: 1m"), reason: "OutOfcpu", says: "used: 2000"},

	"selector": {pod: "nodeSelector: {disk: ssd, kubernetes.io/arch: amd64}"},
	"selector's value": {pod: "nodeSelector: {disk: hdd}", reason: "NodeAffinity",
		says: "Predicate NodeAffinity failed: the pod's nodeSelector wants the label disk=hdd, and this node has ssd"},
	"selector's label": {pod: "nodeSelector: {zone: z}", reason: "NodeAffinity",
		says: "wants the label zone=z, which this node has not"},
	"architecture": {pod: "nodeSelector: {kubernetes.io/arch: arm64}", reason: "NodeAffinity",
		says: "kubernetes.io/arch=arm64"},
	"affinity": {pod: needs("{key: cpus, operator: Gt, values: ['1']}")},
	"affinity fails": {pod: needs("{key: disk, operator: NotIn, values: [ssd]}"), reason: "NodeAffinity",
		says: "not what the pod's node affinity requires"},
	"affinity's number": {pod: needs("{key: cpus, operator: Gt, values: ['2']}"), reason: "NodeAffinity"},
	"any term will do": {pod: "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" +
		"{matchExpressions: [{key: zone, operator: Exists}]}, {matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}}"},
	"only preferred": {pod: "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: " +
		"{matchExpressions: [{key: zone, operator: Exists}]}}]}}"},
	"another node's":   {pod: "nodeName: n2", reason: "NodeName", says: "the pod is for node n2, and this is n1"},
	"resources before": {pod: "nodeSelector: {disk: hdd}\n" + asks("cpu: 3"), reason: "OutOfcpu"},

	"taint": {node: taint(v1.TaintEffectNoExecute), pod: "{}", reason: "TaintToleration", says: "k=v:NoExecute"},
	"taint tolerated": {node: taint(v1.TaintEffectNoExecute),
		pod: "tolerations: [{key: k, operator: Equal, value: v, effect: NoExecute, tolerationSeconds: 5}]"},
	"all tolerated": {node: taint(v1.TaintEffectNoExecute), pod: "tolerations: [{operator: Exists}]"},
	"another effect": {node: taint(v1.TaintEffectNoExecute),
		pod: "tolerations: [{key: k, operator: Exists, effect: NoSchedule}]", reason: "TaintToleration"},
	"static pods are":       {node: taint(v1.TaintEffectNoExecute), pod: static + "{}"},
	"critical ones are not": {node: taint(v1.TaintEffectNoExecute), pod: critical, reason: "TaintToleration"},
	"no scheduling":         {node: taint(v1.TaintEffectNoSchedule), pod: "{}"},

	"host port": {others: []string{port80("")}, pod: port80(""), reason: "NodePorts",
		says: "host port 80/TCP at 0.0.0.0 is used by pod default/p"},
	"of one address":  {others: []string{port80("hostIP: 10.0.0.1, ")}, pod: port80(""), reason: "NodePorts"},
	"at one address":  {others: []string{port80("")}, pod: port80("hostIP: 10.0.0.1, "), reason: "NodePorts"},
	"other addresses": {others: []string{port80("hostIP: 10.0.0.1, ")}, pod: port80("hostIP: 10.0.0.2, ")},
	"other protocol":  {others: []string{port80("protocol: UDP, ")}, pod: port80("")},
	"of a sidecar": {others: []string{"initContainers: [{name: i, restartPolicy: Always, ports: [{hostPort: 80}]}]"},
		pod: port80(""), reason: "NodePorts"},
	"of an init":        {others: []string{"initContainers: [{name: i, ports: [{hostPort: 80}]}]"}, pod: port80("")},
	"not a host's port": {others: []string{"containers: [{name: c, ports: [{containerPort: 80}]}]"}, pod: port80("")},

	"safe sysctl":     {pod: sysctl("net.ipv4.tcp_syncookies")},
	"with slashes":    {pod: sysctl("net/ipv4/tcp_syncookies")},
	"unsafe sysctl":   {pod: sysctl("net.core.somaxconn"), reason: "SysctlForbidden", says: `forbidden sysctl: "net.core.somaxconn" is not safe, and allowedUnsafeSysctls does not name it`},
	"allowed":         {node: allow("net.core.somaxconn"), pod: sysctl("net.core.somaxconn")},
	"allowed pattern": {node: allow("kernel.msg*", "net/core/*"), pod: sysctl("net.core.somaxconn")},
	"not quite":       {node: allow("net.core.somaxcon"), pod: sysctl("net.core.somaxconn"), reason: "SysctlForbidden"},
	"host's network": {pod: "hostNetwork: true\n" + sysctl("net.ipv4.tcp_syncookies"), reason: "SysctlForbidden",
		says: "would change the host, whose Net namespace the pod has"},
	"host's IPC": {node: allow("kernel.sem"), pod: "hostIPC: true\n" + sysctl("kernel.sem"), reason: "SysctlForbidden",
		says: "IPC"},
	"host's IPC by a pattern": {node: allow("kernel.shm*"), pod: "hostIPC: true\n" + sysctl("kernel.shm_next_id"),
		reason: "SysctlForbidden"},
	"its own IPC":       {node: allow("kernel.sem"), pod: "hostNetwork: true\n" + sysctl("kernel.sem")},
	"sysctls of static": {pod: static + sysctl("net.core.somaxconn"), reason: "SysctlForbidden"},

	"linux":         {pod: "labels: {kubernetes.io/os: linux}\n---\nos: {name: linux}"},
	"windows":       {pod: "os: {name: windows}", reason: "PodOSNotSupported"},
	"windows label": {pod: "labels: {kubernetes.io/os: windows}\n---\n{}", reason: "PodOSSelectorNodeLabelDoesNotMatch"},
	"restarts all":  {pod: restartsAll},
	"undeclared":    {node: func(n *Node) { n.Undeclared = []string{restartAll} }, pod: restartsAll, reason: "PodFeatureUnsupported"},
	"no such rule":  {node: func(n *Node) { n.Undeclared = []string{restartAll} }},
	"strict groups": {pod: "securityContext: {supplementalGroupsPolicy: Strict}", reason: "SupplementalGroupsPolicyNotSupported"},
	"can do them":   {node: func(n *Node) { n.GroupsPolicy = true }, pod: "securityContext: {supplementalGroupsPolicy: Strict}"},
	"merged groups": {pod: "securityContext: {supplementalGroupsPolicy: Merge}"},

	"AppArmor": {pod: "securityContext: {appArmorProfile: {type: RuntimeDefault}}", reason: "AppArmor",
		says: "Cannot enforce AppArmor"},
	"of a container": {pod: "initContainers: [{name: i, securityContext: {appArmorProfile: {type: Localhost, localhostProfile: x}}}]", reason: "AppArmor"},
	"by annotation":  {pod: "annotations: {container.apparmor.security.beta.kubernetes.io/c: runtime/default}\n---\ncontainers: [{name: c}]", reason: "AppArmor"},
	"unconfined":     {pod: "securityContext: {appArmorProfile: {type: Unconfined}}"},
	"the kernel can do it": {node: func(n *Node) { n.AppArmor = true },
		pod: "securityContext: {appArmorProfile: {type: RuntimeDefault}}"},

	"memory is short": {node: condition(v1.NodeMemoryPressure), pod: "containers: [{name: c}]", reason: "Evicted",
		says: "The node had condition: [MemoryPressure]. "},
	"and it asks for some": {node: condition(v1.NodeMemoryPressure), pod: asks("memory: 1Mi")},
	"and it tolerates that": {node: condition(v1.NodeMemoryPressure),
		pod: "tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists}]"},
	"the disk is full":      {node: condition(v1.NodeDiskPressure), pod: asks("memory: 1Mi"), reason: "Evicted"},
	"critical all the same": {node: condition(v1.NodeDiskPressure), pod: critical},
	"static all the same":   {node: condition(v1.NodePIDPressure), pod: static + "{}"},
	"what others have told": {node: func(n *Node) {
		n.Object.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}}
	}, pod: "{}"},
}

func needs(expression string) string {
	return "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [" +
		expression + "]}]}}}"
}

func port80(more string) string {
	return "containers: [{name: c, ports: [{" + more + "containerPort: 8080, hostPort: 80}]}]"
}

func sysctl(name string) string {
	return "securityContext: {sysctls: [{name: " + name + ", value: '1'}]}"
}

func allow(names ...string) func(*Node) { return func(n *Node) { n.Sysctls = names } }

// Each rule refuses with its reason, and the first of several counts.
func TestReasons(t *testing.T) {
	for name, c := range tableOfReasons {
		t.Run(name, func(t *testing.T) {
			node := aNode()
			if c.node != nil {
				c.node(node)
			}
			ledger := NewLedger()
			for _, o := range c.others {
				ledger.Add(NewClaim(aPod(t, o)))
			}
			got := Admit(node, ledger, NewClaim(aPod(t, c.pod)))
			if got.Reason != c.reason || got.Refused() != (c.reason != "") || !strings.Contains(got.Message, c.says) {
				t.Errorf("refused for %q: %q", got.Reason, got.Message)
			}
		})
	}
}

// Shortages of a critical pod are set only if all other rules admit it.
func TestWhatACriticalPodLacks(t *testing.T) {
	others := NewLedger(NewClaim(aPod(t, asks("cpu: 1500m"))))
	got := Admit(aNode(), others, NewClaim(aPod(t, critical+asks("cpu: 700m, memory: 5Gi"))))
	if got.Reason != "OutOfcpu" || len(got.Shortages) != 2 || got.Shortages[0] != (Shortage{"cpu", 200}) ||
		got.Shortages[1] != (Shortage{"memory", 1 << 30}) {
		t.Errorf("%+v", got)
	}
	got = Admit(aNode(), others, NewClaim(aPod(t, critical+"nodeSelector: {disk: hdd}\n"+asks("cpu: 700m"))))
	if got.Reason != ReasonNodeAffinity || got.Shortages != nil {
		t.Errorf("%+v", got)
	}
	if got = Admit(aNode(), others, NewClaim(aPod(t, asks("cpu: 700m")))); got.Shortages != nil {
		t.Errorf("%+v", got)
	}
}

// Extended resources of a ResourceClaim are not counted on the node; those of other containers are.
func TestExtendedResourcesOfAClaim(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "claims", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{"example.com/gpu": resource.MustParse("1")}}}}}}
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "gpu",
		RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "claims", ResourceName: "example.com/gpu"}}}
	if c := NewClaim(pod); c.requests["example.com/gpu"] != 0 || len(pod.Spec.Containers[0].Resources.Requests) == 0 {
		t.Errorf("got requests %v of %v", c.requests, pod.Spec.Containers[0].Resources)
	}
	pod.Status.ExtendedResourceClaimStatus.RequestMappings[0].ContainerName = "other"
	if c := NewClaim(pod); c.requests["example.com/gpu"] != 1 {
		t.Errorf("of another container: got requests %v", c.requests)
	}
}
