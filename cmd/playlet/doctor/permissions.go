package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// checkPermissions finds files and folders of the agent that a user other than root can write or replace. The agent acts on their
// contents as root.
func checkPermissions(_ context.Context, m *Machine) (found []Finding) {
	n := m.Node
	for _, p := range []struct{ setting, path string }{
		{"--config", n.ConfigFile}, {"--config-dir", n.ConfigDir}, {"--kubeconfig", n.KubeconfigPath},
		{"--bootstrap-kubeconfig", n.BootstrapKubeconfigPath}, {"--pod-manifest-path", n.Kubelet.StaticPodPath},
		{"--object-dir", n.ObjectDir}, {"--root-dir", n.RootDir}, {"--cert-dir", n.CertDir}, {"--lock-file", n.LockFile},
		{"--admin-socket", filepath.Dir(n.AdminSocket)}, {"--client-ca-file", n.Kubelet.Authentication.X509.ClientCAFile},
		{"--tls-cert-file", n.Kubelet.TLSCertFile}, {"--tls-private-key-file", n.Kubelet.TLSPrivateKeyFile},
		{"--image-credential-provider-config", n.ImageCredentialProviderConfig},
		{"--image-credential-provider-bin-dir", n.ImageCredentialProviderBinDir},
	} {
		if p.path == "" {
			continue
		}
		if at, why := writableByOthers(p.path); why != "" {
			found = append(found, warn("chown root "+at+"; chmod go-w "+at+"; or choose another path",
				"%s=%s: a user other than root can change it: %s %s", p.setting, p.path, at, why)...)
		}
	}
	return or(found, ok("no other user can write the agent's files"))
}

// writableByOthers returns the file or folder on the way to a path by which another user can write or replace it, and the reason.
// In a sticky folder others replace nothing, and put their own where nothing is.
func writableByOthers(path string) (at, why string) {
	there := existing(path)
	real, err := filepath.EvalSymlinks(there)
	if err != nil {
		real = there
	}
	for _, end := range []string{there, real} {
		for at := end; ; at = filepath.Dir(at) {
			info, err := os.Stat(at)
			if err != nil {
				return "", "" // another check reports it
			}
			stat, _ := info.Sys().(*syscall.Stat_t)
			stat = cmp.Or(stat, &syscall.Stat_t{})
			sticky := at != end && info.Mode()&fs.ModeSticky != 0
			switch {
			case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
				return at, fmt.Sprintf("belongs to user %d", stat.Uid)
			case info.Mode().Perm()&0o002 != 0 && !sticky:
				return at, "is writable by everybody"
			case info.Mode().Perm()&0o020 != 0 && stat.Gid != 0 && !sticky:
				return at, fmt.Sprintf("is writable by group %d", stat.Gid)
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	return "", ""
}
