package locks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
)

// A kubelet that runs for kubeletWait is an agent. "kubelet --version", and one that is ending, are over by then.
const (
	kubeletWait  = 3 * time.Second
	kubeletPause = 100 * time.Millisecond
)

// noKubelet returns an error that names a running kubelet with the runtime or the root folder of node. Each of the two agents
// would end the other's pods. A kubelet in another mount namespace has other files behind the same paths, and is not considered.
func noKubelet(node *config.Node, proc string, wait time.Duration) error {
	for deadline := time.Now().Add(wait); ; time.Sleep(kubeletPause) {
		err := rivalKubelet(node, proc)
		if err == nil || !time.Now().Before(deadline) {
			return err
		}
	}
}

func rivalKubelet(node *config.Node, proc string) error {
	files, err := procfs.NewFS(proc)
	if err != nil {
		return nil //nolint:nilerr // without /proc, processes are unknown
	}
	all, _ := files.AllProcs() // those that can be read
	for _, p := range all {
		if name, err := p.Comm(); err != nil || name != "kubelet" || p.PID == os.Getpid() || !sameMounts(proc, p.PID) {
			continue
		}
		args, err := p.CmdLine()
		if err != nil || len(args) == 0 {
			continue // it has ended
		}
		if shared := sharedWith(node, args[1:]); shared != "" {
			return fmt.Errorf("a kubelet (PID %d) runs with the same %s, and each would end the pods of the other: stop it "+
				"(systemctl disable --now kubelet), or replace it (playlet install --replace-kubelet)", p.PID, shared)
		}
	}
	if k := FindEmbedded(node, proc, os.Getpid()); k != nil {
		return fmt.Errorf("%s, and each would end the pods of the other: %s", k, k.Remedy())
	}
	return nil
}

// sharedWith returns the runtime or root folder of node that a kubelet with these arguments uses as well, or "". A kubelet whose
// configuration cannot be read may use the same ones.
func sharedWith(node *config.Node, args []string) string {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.ParseErrorsAllowlist.UnknownFlags = true
	flags := config.AddFlags(set)
	err := set.Parse(args)
	var theirs *config.Node
	if err == nil {
		theirs, _, err = config.Load(flags, set)
	}
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return ""
	case err != nil:
		return "runtime, as far as can be known (" + err.Error() + ")"
	case samePath(socketOf(theirs), socketOf(node)):
		return "runtime " + node.Kubelet.ContainerRuntimeEndpoint
	case samePath(theirs.RootDir, node.RootDir):
		return "--root-dir " + node.RootDir
	}
	return ""
}

func socketOf(node *config.Node) string {
	path, _ := cri.SocketPath(node.Kubelet.ContainerRuntimeEndpoint) // an invalid endpoint is no kubelet's
	return path
}

// samePath reports whether two paths lead to the same file, or would.
func samePath(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	one, err := os.Stat(a)
	other, otherErr := os.Stat(b)
	if err == nil && otherErr == nil {
		return os.SameFile(one, other)
	}
	return filepath.Clean(a) == filepath.Clean(b)
}

// sameMounts reports whether a process is in this process's mount namespace. An unreadable namespace counts as the same.
func sameMounts(proc string, pid int) bool {
	theirs, err := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "ns", "mnt"))
	ours, ourErr := os.Readlink(filepath.Join(proc, "self", "ns", "mnt"))
	return err != nil || ourErr != nil || theirs == ours
}
