// Package hosttest has a host for the tests of actors that work with the runtime.
package hosttest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/cri/translate"
)

// Simulated is a host over a simulated runtime of its own, which is there until the test ends; Socket of opts is set here.
func Simulated(t testing.TB, opts sim.Options) (*host.Host, *sim.Runtime) {
	t.Helper()
	dir, err := os.MkdirTemp("", "host") // a short path, as unix sockets have
	if err != nil {
		t.Fatal(err)
	}
	opts.Socket = filepath.Join(dir, "s")
	runtime, err := sim.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	client, err := cri.Dial(cri.Options{RuntimeEndpoint: runtime.Endpoint()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		runtime.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return &host.Host{
		CRI: client, Ops: cri.NewOperations(), RootDir: filepath.Join(dir, "root"), RequestTimeout: time.Minute,
		Node: translate.NodeFacts{PodLogsDir: filepath.Join(dir, "logs")},
	}, runtime
}
