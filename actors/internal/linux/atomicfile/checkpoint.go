package atomicfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
)

// maxCheckpoint bounds what Load reads into memory, in bytes. A node's checkpoints are some megabytes at most.
const maxCheckpoint = 64 << 20

// checkpoint is the file: the value as JSON, and what tells whether it is whole and of which shape.
type checkpoint struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"` // of value, compacted
	Value   json.RawMessage `json:"value"`
}

// UnreadableError says that there is a checkpoint and that it is of no use: damaged, or of another version. Its owner reports
// it and goes on as if there were none.
type UnreadableError struct {
	Path string
	// KeptAs is where the file was moved so that it can be looked at; empty when that was impossible, and then Err
	// says why as well.
	KeptAs string
	Err    error
}

// Error implements error.
func (e *UnreadableError) Error() string {
	if e.KeptAs == "" {
		return fmt.Sprintf("checkpoint %s is unreadable: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("checkpoint %s is unreadable and was kept aside as %s: %v", e.Path, e.KeptAs, e.Err)
}

// Unwrap is what was wrong.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Save writes value, as JSON, with its version, as WriteFile does, mode 0600. The version is the shape of value: raise
// it when an older reader would misread the new shape, or the other way round.
func Save(path string, version int, value any) error { return save(path, version, value, true) }

// SaveVolatile is Save for what a restart of the machine makes void: it outlives the process and not a power cut, after which
// the checkpoint is as it was, or unreadable. The disk is not waited for.
func SaveVolatile(path string, version int, value any) error {
	return save(path, version, value, false)
}

func save(path string, version int, value any, durable bool) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	data, err := json.Marshal(checkpoint{Version: version, SHA256: sum(raw), Value: raw})
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	return writeFile(path, append(data, '\n'), 0o600, durable)
}

// Load reads the checkpoint at path into value, a pointer. An error leaves value untouched, and is as LoadText has it.
func Load(path string, version int, value any) error {
	target := reflect.ValueOf(value)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("checkpoint %s: Load needs a pointer, not a %T", path, value)
	}
	fresh := reflect.New(target.Type().Elem())
	if err := LoadText(path, func(data []byte) error { return decode(data, version, fresh.Interface()) }); err != nil {
		return err
	}
	target.Elem().Set(fresh.Elem())
	return nil
}

// LoadText reads a checkpoint that has a form of its own. An error wraps fs.ErrNotExist when there is none, and is an
// *UnreadableError when that is of no use, by decode's word too, and then the file is out of the way. Any other says that it
// cannot be read now, and the file is where it was: a later reading may succeed. None is a reason not to start.
func LoadText(path string, decode func([]byte) error) error {
	data, err := ReadFile(path, maxCheckpoint)
	if err != nil && !errors.Is(err, errUnfit) {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	if err == nil {
		err = decode(data)
	}
	if err != nil {
		kept, asideErr := keepAside(path)
		return &UnreadableError{Path: path, KeptAs: kept, Err: errors.Join(err, asideErr)}
	}
	return nil
}

func decode(data []byte, version int, value any) error {
	var c checkpoint
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("it is cut off or not a checkpoint: %w", err)
	}
	if c.Version != version {
		return fmt.Errorf("it has version %d, and this agent reads version %d", c.Version, version)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, c.Value); err != nil {
		return fmt.Errorf("it has no value: %w", err)
	}
	if sum(compact.Bytes()) != c.SHA256 {
		return errors.New("its checksum does not match its content")
	}
	if err := json.Unmarshal(c.Value, value); err != nil {
		return fmt.Errorf("its value is of another shape: %w", err)
	}
	return nil
}

func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// AsideSuffix is appended to the name of an unreadable checkpoint.
const AsideSuffix = ".corrupt"

// keepAside moves the file out of the way, in place of what was kept before, and says where.
func keepAside(path string) (string, error) {
	lock := writerOf(path)
	lock.Lock()
	defer lock.Unlock()
	kept := path + AsideSuffix
	if err := os.Rename(path, kept); err != nil {
		return "", err
	}
	return kept, syncDir(filepath.Dir(path))
}
