package devices

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

func (m *Manager) newFile() *overdue.Writing[[]byte] {
	return overdue.NewWriting("the checkpoint of device plugins", writeTimeout, func(text []byte) error {
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
		return m.book.restore(data, now)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("it is not known what device plugins gave to containers: devices of pods that run may be given to others",
			"reason", err)
	}
}

// restore takes what the checkpoint has; all of it, or nothing.
func (b *book) restore(data checkpoint.Data, now time.Time) error {
	all := map[holder]map[string]given{}
	for _, e := range data.PodDeviceEntries {
		answer := &pluginapi.ContainerAllocateResponse{}
		if err := proto.Unmarshal(e.AllocResp, answer); err != nil {
			return fmt.Errorf("the answer for container %s of pod %s: %w", e.ContainerName, e.PodUID, err)
		}
		h := holder{e.PodUID, e.ContainerName}
		if all[h] == nil {
			all[h] = map[string]given{}
		}
		all[h][e.ResourceName] = given{e.DeviceIDs, answer}
	}
	b.given = all
	for name := range data.RegisteredDevices {
		b.resources[name] = &known{gone: now}
	}
	return nil
}

// put has what is known now written with the next Flush. mu is held.
func (m *Manager) put() {
	text, err := m.book.encode(time.Now())
	if err != nil { // a bug: every value of it can be encoded
		m.log.Error("what device plugins gave cannot be encoded", "reason", err)
		return
	}
	m.file.Set(text)
}

func (b *book) encode(now time.Time) ([]byte, error) {
	data := checkpoint.Data{RegisteredDevices: map[string][]string{}}
	for name, k := range b.resources {
		if k.current(now) {
			data.RegisteredDevices[name] = k.healthy()
		}
	}
	for h, has := range b.given {
		for name, g := range has {
			if g.answer == nil {
				continue
			}
			answer, err := proto.Marshal(g.answer)
			if err != nil {
				return nil, err
			}
			data.PodDeviceEntries = append(data.PodDeviceEntries, checkpoint.PodDevicesEntry{
				PodUID: h.uid, ContainerName: h.container, ResourceName: name, DeviceIDs: g.devices, AllocResp: answer,
			})
		}
	}
	return checkpoint.Encode(data)
}
