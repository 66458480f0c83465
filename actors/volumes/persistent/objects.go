package persistent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
)

// getTimeout limits one read from the API server.
const getTimeout = 10 * time.Second

// object is an API object as errors name it.
type object struct{ kind, name string }

func (o object) String() string { return o.kind + " " + o.name }

// absent has the causes of absent objects by kind. The cause of other kinds is CauseObjectAbsent.
var absent = map[string]messages.CauseCode{
	"PersistentVolumeClaim": messages.CauseClaimPending, "PersistentVolume": messages.CauseClaimPending,
	"VolumeAttachment": messages.CauseNotAttached,
}

// fetch reads one object. For a pod it waits until the API server's graph allows the read (AwaitGraph). An absent object is a
// kinds.WaitError.
func fetch[T any](
	ctx context.Context, pod *v1.Pod, called object,
	read func(context.Context, string, metav1.GetOptions) (*T, error), name string,
) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	found, err := apiclient.AwaitGraph(ctx, pod, func(ctx context.Context) (*T, error) {
		return read(ctx, name, metav1.GetOptions{})
	})
	switch {
	case apiclient.Absent(err):
		why := messages.Cause{Code: cmp.Or(absent[called.kind], messages.CauseObjectAbsent), Kind: called.kind, Name: called.name}
		return nil, kinds.WaitError{Err: why.Errorf("%s does not exist", called)}
	case err != nil:
		return nil, fmt.Errorf("%s cannot be read: %w", called, err)
	}
	return found, nil
}

// driverObject returns the spec of a CSIDriver. Without an object it is empty, with the kubelet's defaults.
func (s *Storage) driverObject(ctx context.Context, name string) (storagev1.CSIDriverSpec, error) {
	if spec, known := s.objects.spec(name); known {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.attachable[name] = attaches(spec)
		return spec, nil
	}
	found, err := fetch(ctx, nil, object{"CSIDriver", name}, s.Client.StorageV1().CSIDrivers().Get, name)
	if kinds.IsWait(err) {
		found, err = &storagev1.CSIDriver{}, nil
	}
	if err != nil {
		return storagev1.CSIDriverSpec{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attachable[name] = attaches(found.Spec)
	return found.Spec, nil
}

// attaches reports whether the driver's volumes have to be attached.
func attaches(d storagev1.CSIDriverSpec) bool { return ptr.Deref(d.AttachRequired, true) }
