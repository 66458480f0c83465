package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/names"
	"github.com/playlet-dev/playlet/cmd/playlet/client/summary"
	"github.com/playlet-dev/playlet/messages"
)

// podWatch is the state of "playlet pods -w": the last output, to print only differences.
type podWatch struct {
	*podsCommand
	table  *cli.Table
	pods   map[string]api.Pod // by UID
	keys   map[string]string  // of the rows printed last, by UID
	waits  map[string]string  // the printed reasons why pods wait, by UID
	said   []string           // of the node
	lost   bool               // the agent is gone, and has not answered since
	failed error              // of printing
	mu     sync.Mutex         // held while something is taken and printed
}

// watch prints rows as they change, until ctx ends. It outlives the agent: after a restart it goes on.
func (c *podsCommand) watch(ctx context.Context) error {
	w := &podWatch{
		podsCommand: c, table: c.newTable(), pods: map[string]api.Pod{}, keys: map[string]string{}, waits: map[string]string{},
	}
	ctx, stop := context.WithCancel(ctx)
	var progress sync.WaitGroup
	defer progress.Wait()
	defer stop()
	if w.print == nil {
		progress.Go(func() { cli.Repeat(ctx, w.ticks, w.printProgress) })
	}
	reached := false
	for {
		err := c.Client.Watch(ctx, c.set.Filter(), func(change *api.Change) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			reached, w.lost = true, false
			change.Pods = slices.DeleteFunc(change.Pods, func(p api.Pod) bool { return !c.set.Matches(&p) })
			w.failed = w.take(change)
			return w.failed
		})
		if failed := w.failure(); failed != nil || ctx.Err() != nil {
			return failed
		}
		if !reached {
			return err
		}
		w.lose()
		if !cli.Pause(ctx, cli.ReconnectEvery) {
			return nil
		}
	}
}

// lose reports once that the agent is gone.
func (w *podWatch) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.lost {
		w.Note("the agent is gone; waiting for it to come back")
	}
	w.lost = true
}

func (w *podWatch) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func (w *podWatch) printProgress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost { // the known state of the pods is outdated
		return
	}
	var going []api.Pod
	for _, p := range w.pods {
		if p.Waiting != nil && (p.Waiting.Code == messages.ReasonPulling || p.Waiting.Code == messages.ReasonPullQueued) {
			going = append(going, p)
		}
	}
	slices.SortFunc(going, func(x, y api.Pod) int { return strings.Compare(names.Full(&x), names.Full(&y)) })
	if !w.wide() {
		w.Note(summary.Notes(going, w.Now())...)
		return
	}
	var rows [][]string
	for i := range going {
		rows = append(rows, w.row(&going[i], w.Now()))
	}
	if len(rows) > 0 {
		w.failed = errors.Join(w.failed, w.table.Print(rows))
	}
}

// take prints the effects of a change.
func (w *podWatch) take(change *api.Change) error {
	gone := change.Gone
	if change.Complete() {
		gone = append(gone, w.missing(change.Pods)...)
	}
	err := errors.Join(w.changed(change.Pods), w.gone(gone))
	if change.Node != nil {
		w.node(change.Node)
	}
	return err
}

// missing are the pods that were there before the agent was restarted and are not in its first complete list.
func (w *podWatch) missing(now []api.Pod) []api.Ref {
	var out []api.Ref
	for uid, old := range w.pods {
		if !slices.ContainsFunc(now, func(p api.Pod) bool { return string(p.Pod.UID) == uid }) {
			out = append(out, old.Ref())
		}
	}
	slices.SortFunc(out, func(x, y api.Ref) int {
		return strings.Compare(x.Namespace+"/"+x.Name+"/"+x.UID, y.Namespace+"/"+y.Name+"/"+y.UID)
	})
	return out
}

func (w *podWatch) changed(pods []api.Pod) error {
	var rows [][]string
	var notes []string
	var objects []*v1.Pod
	for i := range pods {
		p, uid := &pods[i], string(pods[i].Pod.UID)
		w.pods[uid] = *p
		objects = append(objects, p.Pod)
		if key := summary.RowKey(p, w.wide()) + strings.Join(w.labelCells(p), "\x00"); w.keys[uid] != key {
			w.keys[uid] = key
			rows = append(rows, w.row(p, w.Now()))
		}
		if wait := summary.WaitingFor(p, time.Time{}); w.waits[uid] != wait {
			w.waits[uid] = wait
			notes = append(notes, summary.Notes(pods[i:i+1], w.Now())...)
		}
	}
	err := w.show(rows, objects)
	if w.Output == "table" { // elsewhere it is a column, or in the objects
		w.Note(notes...)
	}
	return err
}

// gone prints the pods that the agent has forgotten: as objects, as kubectl does, they are printed once more, with the time
// of their deletion.
func (w *podWatch) gone(refs []api.Ref) error {
	var rows [][]string
	var objects []*v1.Pod
	for _, ref := range refs {
		p, ok := w.pods[ref.UID]
		if !ok {
			continue
		}
		delete(w.pods, ref.UID)
		delete(w.keys, ref.UID)
		delete(w.waits, ref.UID)
		row := w.row(&p, w.Now())
		row[2], row[3] = "-", "Gone"
		rows = append(rows, row)
		last := p.Pod.DeepCopy()
		if last.DeletionTimestamp == nil {
			last.DeletionTimestamp = &metav1.Time{Time: w.Now()}
		}
		objects = append(objects, last)
	}
	return w.show(rows, objects)
}

// show prints rows of the table or, where objects are printed, these.
func (w *podWatch) show(rows [][]string, objects []*v1.Pod) error {
	if w.print == nil {
		if len(rows) == 0 {
			return nil
		}
		return w.table.Print(rows)
	}
	for _, p := range objects {
		if err := w.printOne(p); err != nil {
			return err
		}
	}
	return nil
}

// printOne prints an API object after others.
func (c *podsCommand) printOne(object runtime.Object) error {
	if c.Output == "yaml" {
		fmt.Fprintln(c.Out, "---")
	}
	return c.print(c.Out, object)
}

// node prints the problems of the node that were not in the previous change, in the same words.
func (w *podWatch) node(n *api.Node) {
	var fresh []string
	now := summary.NodeNotes(n, w.mayMean(slices.Collect(maps.Values(w.pods))), time.Time{})
	for _, line := range now {
		if !slices.Contains(w.said, line) {
			fresh = append(fresh, line)
		}
	}
	w.said = now
	w.Note(fresh...)
}
