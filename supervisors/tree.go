package supervisors

import (
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// Kind is a kind of actor, and the name of the row that declares it.
type Kind string

// Outcome is the consequence when a child panics more often than its row allows.
type Outcome string

// The outcomes.
const (
	// Escalate makes the supervisor itself fail; at the root, the process exits and its service manager starts it again.
	Escalate Outcome = "escalate"
	// Quarantine leaves the child stopped, reports it in health, and restarts it after QuarantinePeriod.
	Quarantine Outcome = "quarantine"
)

// QuarantinePeriod is how long an actor in quarantine is left alone before it is tried again.
const QuarantinePeriod = 5 * time.Minute

// Strategy limits the panics of a child of this row. The exits.Strategy of a child decides about its exits; both use the same
// restart mechanism.
type Strategy struct {
	Panics int           // this many panics
	Within time.Duration // within this time are restarted, with jittered back-off; one more is too many
	Then   Outcome
}

// Row declares one kind of actor: its place in the tree, the clients that send desired state again after its restart, and its
// strategy for panics.
type Row struct {
	Kind     Kind
	Dynamic  bool               // spawned by its parent under names of the parent's choosing; otherwise once, named as its kind
	Clients  []messages.Address // get ServiceStarted after every start, to send their desired state again
	Strategy Strategy
	Why      string
	Children []Row
}

var (
	lenient  = Strategy{Panics: 10, Within: time.Minute, Then: Escalate}
	isolated = Strategy{Panics: 5, Within: time.Minute, Then: Quarantine}
)

// Tree is the supervision tree: each row is restarted by its parent. Children start in the order given.
var Tree = Row{
	Kind: "node", Strategy: lenient,
	Why: "the root restarts services one by one; when one cannot be kept alive, the process exits with the reason and systemd " +
		"starts it again, containers untouched",
	Children: []Row{
		{
			Kind: "identity", Strategy: isolated,
			Why: "the certificates in force, and the asking for their successors, belong to the process; what is wrong with " +
				"them is told later",
		},
		{
			Kind: "runtime", Strategy: lenient, Clients: []messages.Address{messages.Pods, messages.Eviction},
			Why: "no pod moves while the runtime is not read; a restarted actor reads the CRI again",
		},
		{
			Kind: "images", Strategy: lenient, Clients: []messages.Address{messages.Pods, messages.Eviction},
			Why: "pulls under way live in the operations table and are joined again",
		},
		{
			Kind: "objects", Strategy: isolated, Clients: []messages.Address{messages.Pods},
			Why: "running pods need none of it; published objects stay in force; the folder is read again, and pods name " +
				"again what they need of the API server",
		},
		{
			Kind: "volumes", Strategy: lenient, Clients: []messages.Address{messages.Pods},
			Why: "mounts found are read again from the disk",
		},
		{
			Kind: "prober", Strategy: lenient, Clients: []messages.Address{messages.Pods},
			Why: "each probe's last result lies on the disk and with its pod; pods send again what is to be probed",
		},
		{
			Kind: "resources", Strategy: lenient, Clients: []messages.Address{messages.Pods},
			Why: "found cgroups get their values again",
		},
		{
			Kind: "logs", Strategy: isolated, Clients: []messages.Address{messages.Runtime},
			Why: "pods run on while logs grow; the disk shows which logs are too big and what was left half done",
		},
		{
			Kind: "eviction", Strategy: isolated,
			Why: "what was measured last stays reported, and pods that are being evicted end; it measures before it acts",
		},
		{
			Kind: "shutdown", Strategy: isolated,
			Why: "the lock that delays the machine's shutdown is the process's; it asks again whether one is under way",
		},
		{
			Kind: "stats", Strategy: isolated,
			Why: "pods need no figures; what was measured last stays readable, and who reads it has it measured again",
		},
		{
			Kind: "registration", Strategy: lenient, Clients: []messages.Address{messages.Volumes},
			Why: "without its lease the cluster gives the node's pods to others; what the API server has is read again",
		},
		{
			Kind: "pods", Strategy: lenient, Clients: []messages.Address{messages.Sources},
			Why: "its restart restarts every pod actor; each finds its containers by the CRI and touches none",
			Children: []Row{{
				Kind: "pod", Dynamic: true, Strategy: isolated,
				Why: "one pod that cannot be handled must not disturb another: it is quarantined, its containers left alone",
				Children: []Row{{
					Kind: "container", Dynamic: true, Strategy: Strategy{Panics: 5, Within: time.Minute, Then: Escalate},
					Why: "a bug met at one container is a bug of its pod; exits are not panics, and are answered by " +
						"restartPolicy",
				}},
			}, {
				Kind: "ender", Dynamic: true, Strategy: isolated,
				Why: "ends a pod in the place of its actor, which is in quarantine; it reads the truth and goes on from there",
			}},
		},
		{
			Kind: "status", Strategy: lenient, Clients: []messages.Address{messages.Pods, messages.APIServer},
			Why: "writes under way live in the operations table; desired and observed statuses are sent again",
		},
		{
			Kind: "sources", Strategy: lenient,
			Why: "holds the sources apart: one failing source never stops another",
			Children: []Row{{
				Kind: "file", Strategy: isolated,
				Why: "a folder that breaks its reader must not take the node with it; what it desired last stays in force",
			}, {
				Kind: "url", Strategy: isolated,
				Why: "no answer of a server may take the node with it; what it desired last stays in force",
			}, {
				Kind: "submit", Strategy: isolated,
				Why: "what was accepted is on disk and stays wanted while nobody can submit anything",
			}, {
				Kind: "apiserver", Strategy: isolated,
				Why: "no answer of an API server may take the node with it; the watch goes on beside it, and what it desired " +
					"last stays in force",
			}},
		},
		{
			Kind: "events", Strategy: isolated,
			Why: "nothing depends on Events; those that waited to be sent are lost",
		},
		{
			Kind: "server", Strategy: isolated,
			Why: "pods run on when nobody can ask about them",
		},
	},
}

// child is the row of the child with this name, by name for static rows and by position for dynamic ones; nil: there is none.
func (r *Row) child(name string) *Row {
	for i := range r.Children {
		if c := &r.Children[i]; c.Dynamic || string(c.Kind) == name {
			return c
		}
	}
	return nil
}

// Walk calls f for every row, parents first, with the path of kinds to it ("pods/pod/container"; the root's is "node").
func (r *Row) Walk(f func(path string, row *Row)) {
	f(string(r.Kind), r)
	for i := range r.Children {
		r.Children[i].Walk(func(path string, row *Row) {
			if r.Kind != "node" {
				path = string(r.Kind) + "/" + path
			}
			f(path, row)
		})
	}
}
