package cni

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"
)

// prefix begins the name of every trial, which is the container's ID for the plugins and the name of the namespace.
const prefix = "playlet-doctor-"

// record is what undoing a trial takes. It is written before anything is made.
type record struct {
	ContainerID string           `json:"containerID"`
	NetNS       string           `json:"netns"`
	BinDirs     []string         `json:"binDirs"`
	Networks    []recordedConfig `json:"networks"`
}

// recordedConfig is a network as it was then: the file may be another by now.
type recordedConfig struct {
	File      string          `json:"file"`
	Interface string          `json:"interface"`
	Config    json.RawMessage `json:"config"`
}

const (
	recordFile = "record.json"
	lockFile   = "lock"
	// cacheDir is libcni's, of results. The runtime's own is not for us: its garbage collection reads it.
	cacheDir = "cache"
)

// begin makes what a trial needs.
func (t Trial) begin(networks []Network) (*attempt, error) {
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	id := prefix + hex.EncodeToString(random)
	r := record{ContainerID: id, NetNS: filepath.Join(t.NetNSDir, id), BinDirs: t.Places.BinDirs}
	for i := range networks {
		config, err := networks[i].inlined()
		if err != nil {
			return nil, err
		}
		r.Networks = append(r.Networks, recordedConfig{networks[i].File, networks[i].Interface, config})
	}
	if err := os.MkdirAll(t.dir(id), 0o700); err != nil {
		return nil, err
	}
	lock, err := takeLock(t.dir(id))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(t.dir(id)))
	}
	a := t.attempt(t.dir(id), lock, r)
	text, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(filepath.Join(a.dir, recordFile), text, 0o600)
	}
	if err == nil {
		err = makeNetNS(r.NetNS)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(a.dir), lock.Close())
	}
	return a, nil
}

func (t Trial) attempt(dir string, lock *os.File, r record) *attempt {
	return &attempt{
		trial: t, dir: dir, lock: lock, record: r, given: map[string]*types100.Result{}, begun: map[string]bool{},
		config: libcni.NewCNIConfigWithCacheDir(r.BinDirs, filepath.Join(dir, cacheDir), &runner{}),
	}
}

// errHeld says that a trial is under way.
var errHeld = errors.New("a trial is under way")

// takeLock takes the lock of a trial's folder, which its process holds for as long as it lives.
func takeLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errHeld
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Sweep undoes what trials have left that were killed: by their records, and, after a restart of the machine, which takes
// these away, by the addresses that host-local has reserved for them on disk. It says what it did.
func (t Trial) Sweep(ctx context.Context, networks []Network) (notes []string, err error) {
	entries, err := os.ReadDir(t.StateDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	alive := map[string]bool{}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		err := t.undoOne(ctx, t.dir(e.Name()))
		switch {
		case errors.Is(err, errHeld):
			alive[e.Name()] = true
		case err != nil:
			alive[e.Name()] = true // it is reported, not tried twice
			notes = append(notes, fmt.Sprintf("what an earlier trial has left (%s) could not be undone: %v", t.dir(e.Name()),
				err))
		default:
			notes = append(notes, "removed what an earlier trial had left that was killed")
		}
	}
	return append(notes, t.freeLeases(ctx, networks, alive)...), nil
}

// maxRecord bounds what is read of a record, in bytes: it has the configurations of some networks.
const maxRecord = 4 << 20

func readRecord(path string) (text []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if text, err = io.ReadAll(io.LimitReader(f, maxRecord+1)); len(text) > maxRecord {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxRecord)
	}
	return text, err
}

// undoOne undoes the trial of a folder.
func (t Trial) undoOne(ctx context.Context, dir string) error {
	lock, err := takeLock(dir)
	if err != nil {
		return err
	}
	text, err := readRecord(filepath.Join(dir, recordFile))
	if errors.Is(err, os.ErrNotExist) { // killed before anything was made
		return errors.Join(os.RemoveAll(dir), lock.Close())
	}
	var r record
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && (r.ContainerID != filepath.Base(dir) || filepath.Base(r.NetNS) != r.ContainerID) {
		err = errors.New("its record is of another")
	}
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	a := t.attempt(dir, lock, r)
	var errs []error
	for _, config := range slices.Backward(r.Networks) {
		list, err := libcni.NetworkConfFromBytes(config.Config)
		if err == nil {
			n := newNetwork(config.File, config.Interface, list)
			err = a.del(ctx, &n)
		}
		errs = append(errs, err)
	}
	errs = append(errs, removeNetNS(r.NetNS))
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, lock.Close())
	}
	return errors.Join(os.RemoveAll(dir), lock.Close())
}

// freeLeases has the plugins free addresses of trials that are no more.
func (t Trial) freeLeases(ctx context.Context, networks []Network, alive map[string]bool) (notes []string) {
	for i := range networks {
		n := &networks[i]
		for _, lease := range n.leases() {
			if !strings.HasPrefix(lease.container, prefix) || alive[lease.container] {
				continue
			}
			a := t.attempt(t.dir(lease.container), nil, record{ContainerID: lease.container, BinDirs: t.Places.BinDirs})
			if err := a.del(ctx, n); err != nil {
				notes = append(notes, fmt.Sprintf("an address that an earlier trial has reserved (%s) could not be freed: %v",
					lease.file,
					err))
				continue
			}
			notes = append(notes, "freed an address that an earlier trial had reserved")
		}
	}
	return notes
}
