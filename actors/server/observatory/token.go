package observatory

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
)

// tokenBytes is the number of random bytes in a token.
const tokenBytes = 32

// Token is the secret for the page on a port. A file that only root can read keeps it over restarts. Safe for concurrent use.
type Token struct {
	path string

	mu   sync.Mutex
	text string // empty before it is loaded
}

// NewToken returns the token of that file, without reading it.
func NewToken(path string) *Token { return &Token{path: path} }

// Path returns the path of the file.
func (t *Token) Path() string { return t.path }

// Load reads the token, and creates one if there is none, or if it is invalid or was readable by others. It may be called again.
func (t *Token) Load() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text != "" {
		return nil
	}
	text, err := ReadToken(t.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNoToken) {
		return err
	}
	if err != nil {
		var random [tokenBytes]byte
		_, _ = rand.Read(random[:]) // it never fails
		text = base64.RawURLEncoding.EncodeToString(random[:])
		if err := atomicfile.WriteFile(t.path, []byte(text+"\n"), 0o600); err != nil {
			return fmt.Errorf("keeping the web page's token: %w", err)
		}
	}
	t.text = text
	return nil
}

func (t *Token) value() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}

// errNoToken is returned for a file without a token, or with one that others could read.
var errNoToken = errors.New("it does not contain a valid token, or other users can read it")

// ReadToken reads a token's file. An error wraps fs.ErrNotExist if there is none, and fs.ErrPermission if the caller may not read
// it.
func ReadToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return "", fmt.Errorf("%s: %w", path, errNoToken)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // read-only
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	random, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(random) != tokenBytes || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s: %w", path, errNoToken)
	}
	return token, nil
}
