package devices

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/playlet-dev/playlet/actors/internal/devices/checkpoint"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/overdue"
)

// writeTimeout is how long a write of the checkpoint is awaited.
const writeTimeout = 15 * time.Second

func (m *Manager) path() string { return filepath.Join(m.dir, "kubelet_internal_checkpoint") }

func (m *Manager) newFile() *overdue.Writer[state] {
	return overdue.NewWriter("the checkpoint of device plugins", writeTimeout, func(s state) error {
		text, err := s.encode()
		if err != nil { // a bug: every value of it can be encoded
			return err
		}
		if err := os.MkdirAll(m.dir, 0o750); err != nil {
			return err
		}
		return atomicfile.WriteFile(m.path(), text, 0o600)
	})
}

// load reads the checkpoint. Resources that it names have no devices before their plugin registers.
func (m *Manager) load(now time.Time) {
	err := atomicfile.LoadText(m.path(), func(text []byte) error {
		data, err := checkpoint.Decode(text)
		if err != nil {
			return err
		}
		return m.inventory.restore(data, now)
	})
	if err == nil {
		return
	}
	m.unread = err.Error()
	if !errors.Is(err, fs.ErrNotExist) {
		m.damage = "it is not known what device plugins gave to containers; devices of pods that run may be given to others: " +
			err.Error()
		m.log.Warn("the checkpoint of device plugins cannot be read; devices of running pods may be allocated to other pods",
			"error", err)
	}
}

// Forgotten reports whether the checkpoint is absent or damaged, and Reset has not been called. It does not block.
func (m *Manager) Forgotten() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unread != ""
}

// Reset confirms that the Node has no unknown devices. It writes a checkpoint, so that the next process does not reset
// resources that others have added since. It does not block.
func (m *Manager) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unread == "" || m.ctx.Err() != nil {
		return
	}
	m.unread = ""
	m.put()
	m.loops.Go(m.flush)
}

func (m *Manager) flush() {
	if err := m.file.Flush(); err != nil {
		m.log.Warn("the checkpoint of device plugins cannot be written", "error", err)
	}
}

// Damage is a sentence on the checkpoint where it could not be read; empty: it could. It does not wait.
func (m *Manager) Damage() string { return m.damage }

// restore loads a checkpoint, completely or not at all.
func (b *inventory) restore(data checkpoint.Data, now time.Time) error {
	all := map[holder]map[string]allocation{}
	for _, e := range data.PodDeviceEntries {
		answer := &pluginapi.ContainerAllocateResponse{}
		if err := proto.Unmarshal(e.AllocResp, answer); err != nil {
			return fmt.Errorf("the answer for container %s of pod %s: %w", e.ContainerName, e.PodUID, err)
		}
		h := holder{e.PodUID, e.ContainerName}
		if all[h] == nil {
			all[h] = map[string]allocation{}
		}
		all[h][e.ResourceName] = allocation{e.DeviceIDs, answer}
	}
	b.given = all
	for name := range data.RegisteredDevices {
		b.resources[name] = &resourceState{gone: now}
	}
	return nil
}

// put schedules the present inventory for the next Flush. The caller holds mu.
func (m *Manager) put() {
	m.file.Set(m.inventory.state(time.Now()))
}

// state is the content of the checkpoint. It is immutable, so that it can be encoded without the lock.
type state struct {
	data    checkpoint.Data // of the entries no answer yet
	answers []*pluginapi.ContainerAllocateResponse
}

func (b *inventory) state(now time.Time) (s state) {
	s.data.RegisteredDevices = map[string][]string{}
	for name, k := range b.resources {
		if k.current(now) {
			s.data.RegisteredDevices[name] = k.healthy()
		}
	}
	for h, has := range b.given {
		for name, g := range has {
			if g.answer != nil {
				s.answers = append(s.answers, g.answer)
				s.data.PodDeviceEntries = append(s.data.PodDeviceEntries, checkpoint.PodDevicesEntry{
					PodUID: h.uid, ContainerName: h.container, ResourceName: name, DeviceIDs: g.devices})
			}
		}
	}
	return s
}

func (s state) encode() ([]byte, error) {
	s.data.PodDeviceEntries = slices.Clone(s.data.PodDeviceEntries)
	for i, a := range s.answers {
		answer, err := proto.Marshal(a)
		if err != nil {
			return nil, err
		}
		s.data.PodDeviceEntries[i].AllocResp = answer
	}
	return checkpoint.Encode(s.data)
}
