package atomicfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
)

// maxCheckpoint limits the size of a checkpoint that Load reads, in bytes. A node's checkpoints are some megabytes at most.
const maxCheckpoint = 64 << 20

// checkpoint is the content of the file: the value as JSON, its checksum, and the version of its shape.
type checkpoint struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"` // of value, compacted
	Value   json.RawMessage `json:"value"`
}

// UnreadableError is the error about a checkpoint that is damaged or of another version. Its owner reports it and continues
// without the checkpoint.
type UnreadableError struct {
	Path string
	// KeptAs is the path to which the file was moved for inspection. It is empty if that failed, and Err has the reason.
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

// Unwrap returns Err.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Save writes value as JSON with its version, as WriteFile does, mode 0600. Raise the version if an older reader would misread
// the new shape of value, or a newer reader the old one.
func Save(path string, version int, value any) error { return save(path, version, value, true) }

// SaveVolatile is like Save, for values that become invalid when the machine restarts. It does not wait for the disk. After a
// power cut the checkpoint has the earlier content, or is unreadable.
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

// Load reads the checkpoint at path into value, a pointer. After an error, value is unchanged. Load returns the same errors as
// LoadText.
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

// LoadText reads a checkpoint of another format. The error wraps fs.ErrNotExist if there is no checkpoint. It is an
// *UnreadableError if the checkpoint is damaged or decode fails; the file is then kept aside. After any other error the file is
// unchanged, and a later read may succeed. The agent starts despite any of these errors.
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
		return fmt.Errorf("it is truncated or not a checkpoint: %w", err)
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

// ReadBack restores a checkpoint that was kept aside, and reports whether it did. It restores only an intact checkpoint of this
// version, and only if there is no newer one at path. Another version of the agent kept it aside, e.g. after a rollback.
func ReadBack(path string, version int) (bool, error) {
	lock := writerOf(path)
	lock.Lock()
	defer lock.Unlock()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	data, err := ReadFile(path+AsideSuffix, maxCheckpoint)
	var value json.RawMessage
	if err != nil || decode(data, version, &value) != nil {
		return false, nil // a checkpoint that is damaged or of another version stays aside
	}
	if err := os.Rename(path+AsideSuffix, path); err != nil {
		return false, err
	}
	return true, syncDir(filepath.Dir(path))
}

// AsideSuffix is appended to the name of an unreadable checkpoint.
const AsideSuffix = ".corrupt"

// keepAside moves the file to its name with AsideSuffix, replacing an earlier one, and returns that path. If a folder is in the
// way, it is moved away first, since owners write their state over an unreadable file that was not moved.
func keepAside(path string) (string, error) {
	lock := writerOf(path)
	lock.Lock()
	defer lock.Unlock()
	kept := path + AsideSuffix
	err := os.Rename(path, kept)
	for n := 1; err != nil && n < 100; n++ {
		earlier := fmt.Sprint(kept, ".", n)
		if _, statErr := os.Lstat(earlier); errors.Is(statErr, fs.ErrNotExist) {
			if os.Rename(kept, earlier) == nil {
				err = os.Rename(path, kept)
			}
			break
		}
	}
	if err != nil {
		return "", err
	}
	return kept, syncDir(filepath.Dir(path))
}
