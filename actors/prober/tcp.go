package prober

import (
	"context"

	"github.com/playlet-dev/playlet/actors/internal/endpoint"
)

// tcpProbe connects: a port that takes the connection is success.
func tcpProbe(ctx context.Context, _ Options, j job) outcome {
	port, err := endpoint.Port(j.spec.TCPSocket.Port, j.container.Ports)
	if err != nil {
		return outcome{result: unknown, message: err.Error()}
	}
	address, err := endpoint.Address(j.spec.TCPSocket.Host, j.ips, port)
	if err != nil {
		return outcome{result: unknown, message: err.Error()}
	}
	conn, err := endpoint.Dialer().DialContext(ctx, "tcp", address)
	if err != nil {
		return outcome{result: failure, message: text("TCP ", address, ": ", endpoint.Plain(err).Error())}
	}
	_ = conn.Close() // it was taken: that is all that was asked
	return outcome{result: success, message: ""}
}
