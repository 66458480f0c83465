package dra

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
)

// A driver that reports other devices each time fills no memory: expired reports are forgotten, and others have a limit. Known
// devices are still reported.
func TestHealth_OfOtherDevicesEachTime(t *testing.T) {
	r, now := reports{}, time.Now()
	report := func(first, count int, seconds int64) (list []*healthapi.DeviceHealth) {
		for i := range count {
			list = append(list, &healthapi.DeviceHealth{Health: healthapi.HealthStatus_HEALTHY, HealthCheckTimeoutSeconds: seconds,
				Device: &healthapi.DeviceIdentifier{PoolName: "p", DeviceName: fmt.Sprint(first + i)}})
		}
		return list
	}
	for i := range 5 {
		r.take(now, "d.org", report(i*3000, 3000, 60))
	}
	if n := len(r["d.org"]); n != maxReports {
		t.Errorf("%d reports are kept, want %d", n, maxReports)
	}
	unhealthy := report(0, 1, 60)
	unhealthy[0].Health = healthapi.HealthStatus_UNHEALTHY
	if changed, _ := r.take(now, "d.org", unhealthy); len(changed) != 1 {
		t.Errorf("the change of a known device over the limit: %v", changed)
	}
	r.take(now.Add(2*time.Minute), "d.org", report(1e6, 1, 60))
	if n := len(r["d.org"]); n != 1 {
		t.Errorf("%d reports are kept after all others have expired", n)
	}
}

// A driver that accepts connections and ends them at once is connected to at a bounded rate.
func TestConnection_ThatEndsAtOnce(t *testing.T) {
	n := newNode(t)
	n.pace = func() *rate.Limiter { return rate.NewLimiter(rate.Every(time.Hour), 3) }
	socket := filepath.Join(n.dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a test
	var accepted atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // HTTP/2: no settings
			_ = c.Close()
		}
	}()
	var lines buffer
	n.log = slog.New(slog.NewTextHandler(&lines, nil))
	n.Manager.health = nil // its stream makes connections, too
	if err := n.Registry().Register(t.Context(), socket, "d.org", socket, []string{api.DRAPluginService}); err != nil {
		t.Fatal(err)
	}
	var p *plugin
	n.locked(func() { p = n.plugins.pick("d.org") })
	for end := time.Now().Add(time.Minute); p.connections.Tokens() >= 0; time.Sleep(time.Millisecond) { // until it waits
		if time.Now().After(end) {
			t.Fatalf("the agent does not wait after %d connections", accepted.Load())
		}
	}
	if got := strings.Count(lines.String(), "connected=true"); got > 3 {
		t.Errorf("%d connections, want at most 3", got)
	}
}

// buffer collects the log.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
