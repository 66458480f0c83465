package doctor

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
)

// Runtime is the part of the runtime's client that the doctor uses. *cri.Client implements it.
type Runtime interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	GetContainerEvents(ctx context.Context, opened func(), event func(*runtimeapi.ContainerEventResponse)) error
	Close() error
}

// runtimeFacts are what the runtime has said, once for all checks.
type runtimeFacts struct {
	version *runtimeapi.VersionResponse
	status  *runtimeapi.StatusResponse
	// driver is "systemd" or "cgroupfs"; empty where the runtime does not tell (before containerd 2.0).
	driver string
	// images are the mount points of the file systems that images and containers lie on.
	images []string
	events bool
	err    error
}

// askLimit is how long the runtime may take to answer everything.
const askLimit = 10 * time.Second

// askRuntime asks the runtime once; whoever comes later waits for the same answers.
func (m *Machine) askRuntime(ctx context.Context) (*runtimeFacts, error) {
	m.asking.Do(func() {
		m.asked = make(chan struct{})
		go func() {
			defer close(m.asked)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
			defer cancel()
			m.runtime = m.askNow(ctx)
		}()
	})
	select {
	case <-m.asked:
		return &m.runtime, m.runtime.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (m *Machine) askNow(ctx context.Context) (f runtimeFacts) {
	client, err := m.Dial(m.Node)
	if err != nil {
		return runtimeFacts{err: err}
	}
	defer client.Close() //nolint:errcheck // it was only asked
	if f.version, f.err = client.Version(ctx); f.err != nil {
		return f
	}
	if f.status, f.err = client.Status(ctx, true); f.err != nil {
		return f
	}
	config, err := client.RuntimeConfig(ctx)
	if err != nil && !cri.IsUnimplemented(err) {
		f.err = err
		return f
	}
	if linux := config.GetLinux(); linux != nil {
		f.driver = strings.ToLower(linux.GetCgroupDriver().String())
	}
	if info, err := client.ImageFsInfo(ctx); err == nil { // where it cannot tell, that is not looked at
		for _, fs := range append(info.GetImageFilesystems(), info.GetContainerFilesystems()...) {
			if at := fs.GetFsId().GetMountpoint(); at != "" {
				f.images = append(f.images, at)
			}
		}
	}
	f.events = hasEvents(ctx, client)
	return f
}

// hasEvents subscribes. A runtime that knows no events says so at once, but not always before it answers what was asked after: it
// gets the time that so many answers take, which is longer on a slow machine.
func hasEvents(ctx context.Context, client Runtime) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- client.GetContainerEvents(ctx, func() { close(opened) }, func(*runtimeapi.ContainerEventResponse) {})
	}()
	select {
	case <-opened:
	case err := <-ended:
		return sends(err)
	}
	for range 50 {
		if _, err := client.Version(ctx); err != nil {
			break
		}
		select {
		case err := <-ended:
			return sends(err)
		default:
		}
	}
	cancel()
	return sends(<-ended)
}

// sends says whether a stream of events that ended so, unasked, would have had any: CRI-O ends it at once where events are off,
// as they are by default.
func sends(err error) bool { return err != nil && !errors.Is(err, io.EOF) && !cri.IsUnimplemented(err) }

// unit is the name under which the service manager has the runtime, by its socket, and its word for hints; both are general
// where the socket is nobody's known one.
func unit(endpoint string) (name, journal string) {
	for _, known := range []string{"containerd", "crio"} {
		if strings.Contains(endpoint, known) {
			return known, "its own log says more (journalctl -u " + known + ")"
		}
	}
	return "", "its own log says more"
}

// checkRuntime says whether the runtime can be worked with.
func checkRuntime(ctx context.Context, m *Machine) []Finding {
	endpoint := m.Node.Kubelet.ContainerRuntimeEndpoint
	facts, err := m.askRuntime(ctx)
	if err != nil {
		seen, do := explain(err, endpoint)
		return fail(do, "%s: %s", endpoint, seen)
	}
	v := facts.version
	return ok("%s %s, CRI %s, at %s", v.GetRuntimeName(), v.GetRuntimeVersion(), v.GetRuntimeApiVersion(), endpoint)
}

// explain says what is wrong with the runtime, and what to do.
func explain(err error, endpoint string) (seen, do string) {
	name, journal := unit(endpoint)
	start := "start the runtime, or name its socket by --container-runtime-endpoint"
	if name != "" {
		start = "start the runtime (systemctl start " + name + "), or name its socket by --container-runtime-endpoint"
	}
	path, pathErr := cri.SocketPath(endpoint)
	msg := cri.Message(err)
	switch {
	case pathErr != nil:
		return pathErr.Error(), "correct containerRuntimeEndpoint, or --container-runtime-endpoint"
	case cri.IsPermanent(err) && name != "containerd":
		return msg, "the runtime has to speak CRI v1: a newer version of it does"
	case cri.IsPermanent(err):
		return msg,
			"containerd needs 1.6 or newer, and its CRI plugin: no \"cri\" in disabled_plugins of /etc/containerd/config.toml"
	case cri.IsTimeout(err) || strings.Contains(msg, "server preface"): // gRPC gives up on a connection without a word
		return "it accepts connections and gives no answer",
			journal + "; restarting it may help, containers go on"
	}
	if info, statErr := os.Stat(path); errors.Is(statErr, os.ErrNotExist) {
		return "there is no socket", start
	} else if statErr == nil && info.Mode()&os.ModeSocket == 0 {
		return "it is no socket", start
	}
	switch {
	case strings.Contains(msg, "connection refused"):
		return "nobody listens at the socket", start
	case strings.Contains(msg, "permission denied"):
		return "permission denied", "run as root"
	case strings.Contains(msg, "not initialized yet"):
		return "it is still starting: " + msg, "wait; " + journal
	default:
		return msg, journal
	}
}

// noRuntime is what checks say that need the runtime's word.
func noRuntime() []Finding { return skip("the runtime does not answer") }
