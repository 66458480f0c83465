package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc/status"
	apiclient "k8s.io/client-go/rest"

	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// recordRuntimeCall puts a call of the container runtime into the flight recorder. What the runtime said of a failure may hold
// anything: only its code is kept.
func recordRuntimeCall(ctx context.Context, o cri.Observation) {
	said := o.Object
	if o.Err != nil {
		said += " failed=" + status.Code(o.Err).String()
	}
	supervisors.RecordCall(ctx, supervisors.Call{
		To: messages.Runtime, Name: o.Call, Digest: said, Asked: o.Asked, Began: o.Began, Took: o.Took,
	})
}

// recorded makes clients whose requests are in the flight recorder.
func recorded(of func() *apiclient.Config) func() *apiclient.Config {
	return func() *apiclient.Config {
		c := of()
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return recordingTransport{next} })
		return c
	}
}

type recordingTransport struct{ next http.RoundTripper }

func (t recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := t.next.RoundTrip(r)
	call := supervisors.Call{
		To: messages.APIServer, Name: r.Method, Digest: r.URL.Path, Asked: began, Began: began, Took: time.Since(began),
	}
	switch {
	case err != nil:
		call.Digest += " failed"
	case resp.StatusCode >= http.StatusBadRequest:
		call.Digest += fmt.Sprintf(" failed=%d", resp.StatusCode)
	}
	supervisors.RecordCall(r.Context(), call)
	return resp, err
}

// WrappedRoundTripper is the one below, for client-go.
func (t recordingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// flightFile is where the flight recorder is written on SIGUSR1.
func flightFile(node *config.Node) string {
	return filepath.Join(stateDir(node), "flight-recorder.log")
}

// dumpOnSignal writes the flight recorder to its file at each SIGUSR1, until ctx ends.
func dumpOnSignal(ctx context.Context, recorder *supervisors.Recorder, file string, log *slog.Logger) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	defer signal.Stop(asked)
	for {
		select {
		case <-asked:
		case <-ctx.Done():
			return
		}
		err := os.WriteFile(file+".new", []byte(recorder.Dump("")), 0o600)
		if err == nil {
			err = os.Rename(file+".new", file)
		}
		if err != nil {
			log.Warn("the flight recorder cannot be written", "error", err)
			continue
		}
		size := recorder.Size()
		log.Info("flight recorder written", "file", file, "entries", size.Entries, "bytes", size.Bytes)
	}
}
