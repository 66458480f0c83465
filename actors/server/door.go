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

// readyDoor is a door that opens once something else is there.
type readyDoor struct {
	door
	ready func() error
}

func (d readyDoor) open(ctx context.Context) (net.Listener, error) {
	if err := d.ready(); err != nil {
		return nil, err
	}
	return d.door.open(ctx)
}
