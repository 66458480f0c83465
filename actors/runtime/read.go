package runtime

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/find"
	"github.com/playlet-dev/playlet/actors/runtime/readqueue"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/messages"
)

// podRead is one pod, read.
type podRead struct {
	facts messages.PodFacts
	sig   uint64
	// odd is what is wrong with things that say they are the pod's and are malformed otherwise; they are left out.
	odd error
}

// readPod reads one pod: two lists, unless an audit made them, and the status of what can have changed since was, the
// pod's facts as they were read before. An exited container cannot change any more, a running one only its state, and
// a ready sandbox keeps its addresses.
func readPod(ctx context.Context, c CRI, uid string, readAt time.Time, from *readqueue.Listed,
	was messages.PodFacts) (podRead, error) {
	if from == nil {
		l, err := listPod(ctx, c, uid)
		if err != nil {
			return podRead{}, err
		}
		from = &readqueue.Listed{Listing: l, Sig: signature(l), ReadAt: readAt}
	}
	light, odd := from.Light(uid, from.ReadAt)
	out := podRead{facts: light, sig: from.Sig, odd: odd}
	out.facts.Containers = nil
	for _, f := range light.Containers {
		full, err := readContainer(ctx, c, f, was.Containers)
		switch {
		case err == nil:
			out.facts.Containers = append(out.facts.Containers, full)
		case errors.Is(err, facts.ErrForeign):
			out.odd = errors.Join(out.odd, err)
		case !cri.IsNotFound(err): // one that was removed meanwhile is as if it had never been listed
			return podRead{}, err
		}
	}
	if err := readSandboxes(ctx, c, &out.facts, was.Sandboxes); err != nil {
		return podRead{}, err
	}
	return out, nil
}

func listPod(ctx context.Context, c CRI, uid string) (facts.Listing, error) {
	sandboxes, err := c.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: facts.PodFilter(uid)})
	if err != nil {
		return facts.Listing{}, err
	}
	containers, err := c.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: facts.PodFilter(uid)})
	if err != nil {
		return facts.Listing{}, err
	}
	return facts.Listing{Sandboxes: sandboxes, Containers: containers}, nil
}

// listAll lists everything. Where a list does not fit into one message, pods are listed one by one: those of uids, and those
// that have a log folder, which each pod of a kubelet gets before its sandbox. only are the UIDs of those pods then, and nil
// otherwise. It runs outside the mailbox.
func (a *actor) listAll(ctx context.Context, uids []string) (all facts.Listing, only map[string]bool, err error) {
	all.Sandboxes, err = a.opts.CRI.ListPodSandbox(ctx, nil)
	if err == nil {
		all.Containers, err = a.opts.CRI.ListContainers(ctx, nil)
	}
	if !cri.IsTooLarge(err) {
		return all, nil, err
	}
	folders, err := logFolders(a.opts.PodLogsDir)
	if err != nil {
		return facts.Listing{}, nil, err
	}
	only = map[string]bool{}
	for _, uid := range uids {
		only[uid] = true
	}
	for _, name := range folders {
		if uid, ok := logFolderUID(name); ok {
			only[uid] = true
		}
	}
	all = facts.Listing{}
	for uid := range only {
		l, err := listPod(ctx, a.opts.CRI, uid)
		if err != nil {
			return facts.Listing{}, nil, err
		}
		all.Sandboxes = append(all.Sandboxes, l.Sandboxes...)
		all.Containers = append(all.Containers, l.Containers...)
	}
	return all, only, nil
}

// readContainer is the whole fact of a container that a list has told of.
func readContainer(
	ctx context.Context, c CRI, light messages.ContainerFact, was []messages.ContainerFact,
) (messages.ContainerFact, error) {
	same := find.In(was, func(f *messages.ContainerFact) bool { return f.ID == light.ID && f.State == light.State })
	if same != nil && (same.State == messages.ContainerExited || same.State == messages.ContainerRunning) {
		return *same, nil
	}
	resp, err := c.ContainerStatus(ctx, light.ID, false)
	if err != nil {
		return messages.ContainerFact{}, err
	}
	full, err := facts.Container(resp.GetStatus())
	if err != nil {
		return messages.ContainerFact{}, err
	}
	if full.State == messages.ContainerUnknown && light.State != messages.ContainerUnknown {
		// Nothing is ended on one of two words that disagree: it is read again.
		return messages.ContainerFact{}, fmt.Errorf("container %s is %s in the runtime's list, and unknown by its status",
			light.ID, light.State)
	}
	full.SandboxID = light.SandboxID
	return facts.AddMessage(full, facts.Source(resp.GetStatus()).Read()), nil
}

// readSandboxes completes what the pod's newest sandbox lacks. Of older ones nobody needs more than the list tells.
func readSandboxes(ctx context.Context, c CRI, p *messages.PodFacts, was []messages.SandboxFact) error {
	for len(p.Sandboxes) > 0 {
		newest := &p.Sandboxes[0]
		same := find.In(was, func(f *messages.SandboxFact) bool { return f.ID == newest.ID })
		if same != nil && same.Ready && newest.Ready && (same.HostNet || len(same.IPs) > 0) {
			*newest = *same
			return nil
		}
		resp, err := c.PodSandboxStatus(ctx, newest.ID, false)
		if cri.IsNotFound(err) { // removed meanwhile
			p.Sandboxes = p.Sandboxes[1:]
			continue
		}
		if err != nil {
			return err
		}
		full, err := facts.Sandbox(resp.GetStatus())
		if err == nil {
			*newest = full
		}
		return nil // what a malformed status does not tell, the list's fact is told without
	}
	return nil
}

var seed = maphash.MakeSeed()

// signature tells listings of one pod apart by what is in them and in what state, in whatever order.
func signature(l facts.Listing) uint64 {
	var sum uint64
	for _, s := range l.Sandboxes {
		sum += entry(s.GetId(), s.GetState().String())
	}
	for _, c := range l.Containers {
		sum += entry(c.GetId(), c.GetState().String())
	}
	return sum
}

func entry(id, state string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(id) // never fails
	_, _ = h.WriteString(state)
	return h.Sum64()
}
