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

// podRead is the result of reading one pod.
type podRead struct {
	facts messages.PodFacts
	sig   uint64
	// odd describes malformed objects with the pod's UID, which are left out.
	odd error
}

// readPod reads one pod. It makes two lists, unless an audit made them, and reads the status of objects that can have changed
// since was, the previous facts. An exited container is final, a running one can change only its state, a ready sandbox keeps
// its addresses, and one that is not ready has none.
func readPod(ctx context.Context, c CRI, uid string, readAt time.Time, from *readqueue.PodListing,
	was messages.PodFacts) (podRead, error) {
	if from == nil {
		l, err := listPod(ctx, c, uid)
		if err != nil {
			return podRead{}, err
		}
		from = &readqueue.PodListing{Listing: l, Sig: signature(l), ReadAt: readAt}
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
		case !cri.IsNotFound(err): // one removed meanwhile counts as never listed
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

// listAll lists everything. If a list exceeds one message, it lists pods one by one: the given uids, and pods with a log folder,
// which each pod of a kubelet gets before its sandbox. only holds the UIDs of those pods then, and is nil otherwise. It runs
// outside the mailbox.
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

// readContainer returns the complete fact of a listed container.
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
		// List and status disagree, which must not end a container: it is read again.
		return messages.ContainerFact{}, fmt.Errorf("container %s is %s in the runtime's list, and unknown by its status",
			light.ID, light.State)
	}
	full.SandboxID = light.SandboxID
	return facts.AddMessage(full, facts.Source(resp.GetStatus()).Read()), nil
}

// readSandboxes completes the facts of the pod's newest sandbox. For older ones the list suffices.
func readSandboxes(ctx context.Context, c CRI, p *messages.PodFacts, was []messages.SandboxFact) error {
	for len(p.Sandboxes) > 0 {
		newest := &p.Sandboxes[0]
		same := find.In(was, func(f *messages.SandboxFact) bool { return f.ID == newest.ID })
		if same != nil && (!newest.Ready || same.Ready && (same.HostNet || len(same.IPs) > 0)) {
			ready := newest.Ready
			if *newest = *same; !ready {
				newest.Ready, newest.IPs, newest.NoIP = false, nil, false
			}
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
		return nil // after a malformed status, the list's fact stays
	}
	return nil
}

var seed = maphash.MakeSeed()

// signature hashes the objects of one pod's listing and their states, independent of their order.
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
