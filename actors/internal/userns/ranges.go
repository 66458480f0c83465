package userns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// RecordFile is the name of the record in a pod's folder.
const RecordFile = "userns"

// Sandboxes is the part of the runtime that shows the ranges in use.
type Sandboxes interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
}

// Options configure Ranges.
type Options struct {
	// RootDir has the pods' folders.
	RootDir   string
	Sandboxes Sandboxes
	// Bounds returns the IDs that pods may have. It is called for each new range.
	Bounds    func(context.Context) (Range, error)
	IDsPerPod uint32
	Log       *slog.Logger
}

// Ranges are the ranges of the node's pods. It is safe for concurrent use by one process per root folder.
type Ranges struct {
	opts Options
	// choosing holds one token, by which one range is chosen at a time.
	choosing chan struct{}
	// seen are the ranges of sandboxes by ID, which never change; zero: the host's users.
	seen map[string]Range
}

// New returns the ranges of a node. It reads nothing.
func New(o Options) *Ranges {
	return &Ranges{opts: o, choosing: make(chan struct{}, 1), seen: map[string]Range{}}
}

// Of returns the range of a pod that has one: by its record or, if that is lost, by its sandbox. Otherwise it chooses one.
func (r *Ranges) Of(ctx context.Context, uid string) (Range, error) {
	own, err := r.read(uid)
	if err != nil || own != (Range{}) {
		return own, err
	}
	return r.Take(ctx, uid)
}

// Take returns the range for a new sandbox of a pod: the recorded one, or a free one, which it records first. It returns an error
// if another pod has IDs of the range, or if all ranges are in use.
func (r *Ranges) Take(ctx context.Context, uid string) (Range, error) {
	if err := messages.CheckUID(uid); err != nil {
		return Range{}, err
	}
	select {
	case r.choosing <- struct{}{}:
		defer func() { <-r.choosing }()
	case <-ctx.Done():
		return Range{}, context.Cause(ctx)
	}
	claims, err := r.claims(ctx)
	if err != nil {
		return Range{}, fmt.Errorf("the ranges of user IDs in use: %w", err)
	}
	var own Range
	var others []Range
	for _, c := range claims {
		if c.uid != uid {
			others = append(others, c.of)
		} else if own == (Range{}) || c.recorded {
			own = c.of
		}
	}
	if own != (Range{}) {
		for _, c := range claims {
			if c.uid != uid && own.overlaps(c.of) {
				return Range{}, fmt.Errorf("the range %s of user IDs in %s is used by the pod with UID %s, too: "+
					"delete one of the two", own, r.path(uid), c.uid)
			}
		}
		return own, r.write(uid, own)
	}
	bounds, err := r.opts.Bounds(ctx)
	if err != nil {
		return Range{}, fmt.Errorf("the range of user IDs for pods: %w", err)
	}
	own, ok := choose(bounds, r.opts.IDsPerPod, others)
	if !ok {
		count := fmt.Sprintf("%[1]d of %[1]d in use", bounds.Pods(r.opts.IDsPerPod))
		return Range{}, messages.Cause{Code: messages.CauseNoUserRange, Detail: count}.
			Errorf("no free user namespace range: %s", count)
	}
	return own, r.write(uid, own)
}

// claim is a range that a pod has.
type claim struct {
	uid      string
	of       Range
	recorded bool
}

// claims returns the ranges that pods have, by their records and by the runtime. Only the sandboxes of pods without a record are
// read, each once.
func (r *Ranges) claims(ctx context.Context) ([]claim, error) {
	folders, err := os.ReadDir(filepath.Join(r.opts.RootDir, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []claim
	recorded := map[string]bool{}
	for _, f := range folders {
		if messages.CheckUID(f.Name()) != nil || !f.IsDir() {
			continue
		}
		of, err := r.read(f.Name())
		if err != nil {
			return nil, err
		}
		if of != (Range{}) {
			out, recorded[f.Name()] = append(out, claim{f.Name(), of, true}), true
		}
	}
	sandboxes, err := r.opts.Sandboxes.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]Range, len(sandboxes))
	for _, s := range sandboxes {
		uid := s.GetLabels()[cri.LabelPodUID]
		of, known := r.seen[s.GetId()]
		if !known {
			if recorded[uid] {
				continue // a sandbox of this pod has its range
			}
			if of, err = r.sandbox(ctx, s.GetId()); cri.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		if seen[s.GetId()] = of; of != (Range{}) {
			out = append(out, claim{uid: uid, of: of})
		}
	}
	r.seen = seen
	return out, nil
}

// sandbox returns the range of a sandbox.
func (r *Ranges) sandbox(ctx context.Context, id string) (Range, error) {
	resp, err := r.opts.Sandboxes.PodSandboxStatus(ctx, id, false)
	if err != nil {
		return Range{}, err
	}
	of := ofRuntime(resp.GetStatus().GetLinux().GetNamespaces().GetOptions().GetUsernsOptions())
	return of, nil
}

func (r *Ranges) path(uid string) string {
	return filepath.Join(r.opts.RootDir, "pods", uid, RecordFile)
}

// read returns the recorded range of a pod; zero if there is none. An unreadable record is logged and set aside.
func (r *Ranges) read(uid string) (Range, error) {
	var own Range
	if err := messages.CheckUID(uid); err != nil {
		return own, err
	}
	err := atomicfile.LoadText(r.path(uid), func(data []byte) (err error) {
		own, err = decode(data)
		return err
	})
	if unreadable, is := errors.AsType[*atomicfile.UnreadableError](err); is {
		r.opts.Log.Warn("the record of a pod's user IDs cannot be read; its sandbox shows them, or it gets others", "podUID", uid,
			"error", unreadable)
		return Range{}, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return own, err
}

// write records a pod's range, durably, before any process has it. The folder's mode is the kubelet's.
func (r *Ranges) write(uid string, own Range) error {
	if now, err := r.read(uid); err != nil || now == own {
		return err
	}
	data, err := own.encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.path(uid)), 0o750); err != nil {
		return fmt.Errorf("pod folder: %w", err)
	}
	return atomicfile.WriteFile(r.path(uid), data, 0o600)
}
