package doctor

import (
	"testing"

	"github.com/playlet-dev/playlet/actors/volumes/nfs"
)

func TestVolumes_NamesTheProgramOfNFS(t *testing.T) {
	if path, err := nfs.Find(); err == nil {
		t.Skip("the machine has", path)
	}
	r := newRig(t)
	r.write(r.Node.RootDir+"/pods/u/volumes/kubernetes.io~nfs/pv/file", "")
	r.find("volumes", Warn, "nfs needs the program mount.nfs of the package nfs-common or nfs-utils, which is not installed on this node")
}
