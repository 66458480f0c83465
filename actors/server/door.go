package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// tcpDoor is a TCP address, "host:port".
type tcpDoor string

func (d tcpDoor) open(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", string(d))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is taken by another process: a kubelet, or another playlet", string(d))
	}
	return l, err
}

func (tcpDoor) intact() bool { return true }

func (tcpDoor) close() error { return nil }
