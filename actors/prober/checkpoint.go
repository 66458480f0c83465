package prober

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/messages"
)

// recordVersion is the shape of record on the disk.
const recordVersion = 1

// maxSaves is how many records are written at a time: each waits for the disk.
const maxSaves = 8

// record is the last result of each probe of a pod, as it lies in the pod's folder.
type record struct {
	Containers map[string]lastResults `json:"containers"` // by name
}

// lastResults are the last results for one attempt of a container.
type lastResults struct {
	ID      string                `json:"id"`
	Results messages.ProbeResults `json:"results"`
}

// keep schedules a write of the pod's record if it differs from the one on disk.
func (s *state) keep(p *podState) []effect {
	if p.queued || maps.Equal(p.saved.Containers, p.record().Containers) {
		return nil
	}
	p.queued = true
	s.saves = append(s.saves, p)
	return s.write()
}

func (p *podState) record() record {
	r := record{Containers: map[string]lastResults{}}
	for name, c := range p.containers {
		if c.results != (messages.ProbeResults{}) {
			r.Containers[name] = lastResults{ID: c.id, Results: c.results}
		}
	}
	return r
}

// write starts pending writes, one at a time per pod.
func (s *state) write() []effect {
	var out []effect
	for s.saving < maxSaves {
		i := slices.IndexFunc(s.saves, func(p *podState) bool { return !p.saving })
		if i < 0 {
			break
		}
		p := s.saves[i]
		s.saves = slices.Delete(s.saves, i, i+1)
		s.saving++
		p.queued, p.saving, p.saved = false, true, p.record()
		out = append(out, save{p.uid, p.saved})
	}
	return out
}

// wrote takes the end of a write. One that failed is repeated with the next change.
func (s *state) wrote(uid string, failed bool) []effect {
	s.saving--
	out := s.write()
	p := s.pods[uid]
	if p == nil {
		return out
	}
	p.saving = false
	if failed {
		p.saved = record{}
	}
	if len(p.containers) == 0 && p.loaded {
		return append(out, s.forget(p)...)
	}
	return append(out, s.write()...)
}

func path(rootDir, uid string) string { return filepath.Join(rootDir, "pods", uid, "probes.json") }

// loadRecord reads a pod's record. One that is not there or cannot be read is empty; the error is for the log.
func loadRecord(rootDir, uid string) (record, error) {
	if err := messages.CheckUID(uid); err != nil {
		return record{}, err
	}
	var r record
	if err := atomicfile.Load(path(rootDir, uid), recordVersion, &r); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record{}, err
	}
	return r, nil
}

// saveRecord writes it. The folder is made by volumes, before any container is. The disk is not waited for: after a power cut
// the containers that it is about are dead.
func saveRecord(rootDir, uid string, r record) error {
	if err := messages.CheckUID(uid); err != nil {
		return err
	}
	return atomicfile.SaveVolatile(path(rootDir, uid), recordVersion, r)
}
