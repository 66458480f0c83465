package iscsi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/messages"
)

// databases are the folders of open-iscsi's records of targets, of Debian and of Fedora.
var databases = []string{"/etc/iscsi/nodes", "/var/lib/iscsi/nodes"}

// chapKeys are the keys of a Secret with the credentials of a session. They are also those of open-iscsi.
var chapKeys = []string{"node.session.auth.username", "node.session.auth.password",
	"node.session.auth.username_in", "node.session.auth.password_in"}

// endOfRecord ends a record of open-iscsi.
const endOfRecord = "# END RECORD"

// checkSecret returns an error if a Secret cannot be the credentials of a session.
func checkSecret(about string, secret map[string][]byte) error {
	why := messages.Cause{Code: messages.CauseTargetCredentials, Name: about}
	for _, key := range chapKeys {
		if bytes.ContainsFunc(secret[key], unicode.IsControl) {
			return why.Errorf("%s: the value of %s in the Secret has control characters, such as the end of a line", about, key)
		}
	}
	for _, key := range chapKeys[:2] {
		if len(secret[key]) == 0 {
			return why.Errorf("%s: the Secret has no %s", about, key)
		}
	}
	return nil
}

// setSecret adds the credentials of a session to open-iscsi's records of it, which only root may read. As arguments of iscsiadm
// they would be visible to all users of the node.
func (i Initiator) setSecret(key sessionKey, secret map[string][]byte) error {
	done := false
	for _, path := range i.recordFiles(key) {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		// A part that is written when the machine stops is replaced by the next login.
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		err = f.Chmod(0o600)
		if err == nil {
			_, err = f.Write(withSecret(text, secret))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		done = true
	}
	if !done {
		return fmt.Errorf("%s: open-iscsi's record is in none of the folders %s", key, strings.Join(databases, ", "))
	}
	return nil
}

// recordFiles returns the paths of open-iscsi's records of a session: a file for a portal, or a folder with one for each
// interface.
func (i Initiator) recordFiles(key sessionKey) (out []string) {
	host, port := split(key.portal)
	for _, folder := range databases {
		folder = filepath.Join("/", i.Root, folder)
		entries, _ := os.ReadDir(filepath.Join(folder, key.target)) // it may be absent
		for _, e := range entries {
			name := e.Name()
			switch at := host + "," + port; {
			case e.IsDir() && strings.HasPrefix(name, at+","):
				out = append(out, filepath.Join(folder, key.target, name, key.iface))
			case e.Type().IsRegular() && name == at:
				out = append(out, filepath.Join(folder, key.target, name))
			}
		}
	}
	return out
}

// withSecret returns the text of a record with the credentials in place of earlier ones.
func withSecret(text []byte, secret map[string][]byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		name, _, _ := strings.Cut(string(line), " ")
		if strings.TrimSpace(string(line)) == endOfRecord {
			out.WriteString("node.session.auth.authmethod = CHAP\n")
			for _, key := range chapKeys {
				if len(secret[key]) > 0 {
					fmt.Fprintf(&out, "%s = %s\n", key, secret[key])
				}
			}
		} else if name == "node.session.auth.authmethod" || slices.Contains(chapKeys, name) {
			continue
		}
		out.Write(line)
	}
	return out.Bytes()
}
