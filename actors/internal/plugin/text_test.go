package plugin

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// talkative is a plugin with long errors.
type talkative struct {
	api.UnimplementedRegistrationServer
}

func (talkative) GetInfo(context.Context, *api.InfoRequest) (*api.PluginInfo, error) {
	return nil, status.Error(codes.Aborted, strings.Repeat("ü", 100_000))
}

// The text of an error is cut, between two characters, and its code stays.
func TestDial_LongErrors(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	api.RegisterRegistrationServer(s, talkative{})
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	conn, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // a test
	_, err = api.NewRegistrationClient(conn).GetInfo(t.Context(), &api.InfoRequest{})
	if status.Code(err) != codes.Aborted || len(err.Error()) > maxText+100 || !strings.HasSuffix(err.Error(), "ü …") {
		t.Errorf("got %d bytes: %.100s", len(err.Error()), err)
	}
}
