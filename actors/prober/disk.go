package prober

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/atomicfile"
	"github.com/playlet-dev/playlet/messages"
)

// recordVersion is the shape of record on the disk.
const recordVersion = 1

// maxSaves is how many records are written at a time: each waits for the disk.
const maxSaves = 8

// record is the last word of each probe of a pod, as it lies in the pod's folder.
type record struct {
	Containers map[string]lastWord `json:"containers"` // by name
}

// lastWord is what is known of one attempt of a container.
type lastWord struct {
	ID      string                `json:"id"`
	Results messages.ProbeResults `json:"results"`
}

// keep has the pod's record written when it differs from what lies there.
func (b *book) keep(p *podBook) []effect {
	if p.queued || maps.Equal(p.saved.Containers, p.record().Containers) {
		return nil
	}
	p.queued = true
	b.saves = append(b.saves, p)
	return b.write()
}

func (p *podBook) record() record {
	r := record{Containers: map[string]lastWord{}}
	for name, c := range p.cons {
		if c.results != (messages.ProbeResults{}) {
			r.Containers[name] = lastWord{ID: c.id, Results: c.results}
		}
	}
	return r
}

// write starts what waits to be written, one record of a pod at a time.
func (b *book) write() []effect {
	var out []effect
	for b.saving < maxSaves {
		i := slices.IndexFunc(b.saves, func(p *podBook) bool { return !p.saving })
		if i < 0 {
			break
		}
		p := b.saves[i]
		b.saves = slices.Delete(b.saves, i, i+1)
		b.saving++
		p.queued, p.saving, p.saved = false, true, p.record()
		out = append(out, save{p.uid, p.saved})
	}
	return out
}

// wrote takes the end of a write. One that failed is repeated with the next change.
func (b *book) wrote(uid string, failed bool) []effect {
	b.saving--
	out := b.write()
	p := b.pods[uid]
	if p == nil {
		return out
	}
	p.saving = false
	if failed {
		p.saved = record{}
	}
	if len(p.cons) == 0 && p.loaded {
		return append(out, b.forget(p)...)
	}
	return append(out, b.write()...)
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

// saveRecord writes it. The folder is made by volumes, before any container is.
func saveRecord(rootDir, uid string, r record) error {
	if err := messages.CheckUID(uid); err != nil {
		return err
	}
	return atomicfile.Save(path(rootDir, uid), recordVersion, r)
}
