package dra

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/playlet-dev/playlet/supervisors/guard"
)

// wipeDelay is how long a driver may be gone before its ResourceSlices are deleted; the kubelet's.
const wipeDelay = 30 * time.Second

// wipeRetry is the interval between attempts to delete slices while the API server has no such resource. A proxy's page may
// claim the same.
const wipeRetry = 5 * time.Minute

// Start deletes all ResourceSlices of this node, as the kubelet does: a driver that runs here publishes its slices again. Slices
// of a driver that is gone later are deleted after a delay. It returns at once, and does nothing with a nil Manager.
func (m *Manager) Start() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wipe(m.ctx, "", 0)
}

// watchSlices plans the deletion of a driver's slices if none of its plugins is connected, and otherwise cancels it. The caller
// holds mu.
func (m *Manager) watchSlices(driver string) {
	cancel, planned := m.wipes[driver]
	switch usable := m.plugins.connected(driver); {
	case usable && planned:
		cancel()
		delete(m.wipes, driver)
	case !usable && !planned && m.ctx.Err() == nil:
		ctx, cancel := context.WithCancel(m.ctx)
		m.wipes[driver] = cancel
		m.wipe(ctx, driver, m.wipeDelay)
	}
}

// wipe deletes slices after a delay, until that succeeds or ctx ends. It does not block.
func (m *Manager) wipe(ctx context.Context, driver string, delay time.Duration) {
	m.loops.Go(func() {
		guard.GoOn(ctx, m.log, "deleting ResourceSlices", func(ctx context.Context) {
			for tries := 0; pause(ctx, delay); {
				err := m.deleteSlices(ctx, driver)
				if err == nil || ctx.Err() != nil {
					return
				}
				tries++
				if delay = m.retry(tries); apierrors.IsNotFound(err) { // no such resource, or a proxy's page
					delay = max(delay, m.wipeRetry)
					if tries > 1 {
						continue
					}
				}
				m.log.Info("ResourceSlices cannot be deleted; will retry", "driver", driver, "error", err, "after", delay)
			}
		})
	})
}

// deleteSlices deletes the slices of this node: of one driver, or of all.
func (m *Manager) deleteSlices(ctx context.Context, driver string) error {
	of := fields.Set{resourceapi.ResourceSliceSelectorNodeName: m.nodeName}
	if driver != "" {
		of[resourceapi.ResourceSliceSelectorDriver] = driver
	}
	err := m.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: of.String()})
	if err == nil {
		m.log.Info("deleted the ResourceSlices of the node", "driver", driver)
	}
	return err
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
