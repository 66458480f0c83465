package prober

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/endpoint"
)

// maxGRPC is the maximum size of an application's response, in bytes.
const maxGRPC = 64 << 10

// grpcProbe asks the application's health service (grpc.health.v1, KEP-2727): SERVING is success.
func grpcProbe(ctx context.Context, opts Options, j job) outcome {
	address, err := endpoint.Address("", j.ips, int(j.spec.GRPC.Port))
	if err != nil {
		return outcome{result: unknown, message: err.Error()}
	}
	creds := insecure.NewCredentials()
	if m := j.spec.GRPC.Mode; m != nil && *m == v1.GRPCProbeModeTLS {
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the pod's own endpoint, by its address
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds),
		grpc.WithUserAgent(opts.UserAgent),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxGRPC)),
		grpc.WithMaxHeaderListSize(maxGRPC),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return endpoint.Dialer().DialContext(ctx, "tcp", to)
		}))
	if err != nil {
		return outcome{result: unknown, message: err.Error()}
	}
	defer func() { _ = conn.Close() }() // the answer is there; nothing is lost with the connection
	service := ""
	if j.spec.GRPC.Service != nil {
		service = *j.spec.GRPC.Service
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return outcome{result: failure, message: "the server does not implement the gRPC health protocol (grpc.health.v1.Health)"}
	case err != nil:
		return outcome{result: failure, message: text(fmt.Sprintf("health check of %s: %s", address,
			status.Convert(err).Message()))}
	case resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return outcome{result: failure, message: fmt.Sprintf("service unhealthy (responded with %q)", resp.GetStatus())}
	}
	return outcome{result: success, message: ""}
}
