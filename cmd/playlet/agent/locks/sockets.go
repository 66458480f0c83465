package locks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unixSocket is a Unix socket of this network namespace. The sockets of accepted connections have the name of their listener.
type unixSocket struct {
	inode, peer uint32 // peer is the inode of the other end of a connection; 0 for none
	listens     bool
	name        string // absolute path, or empty
}

// Constants of linux/sock_diag.h and linux/unix_diag.h.
const (
	sockDiagByFamily = 20
	showName         = 1 << 0
	showPeer         = 1 << 2
	attrName         = 0
	attrPeer         = 2
	stateConnected   = 1
	stateListens     = 10
	diagRequest      = 24 // sizes in bytes
	diagMessage      = 16
)

// unixSockets lists the sockets by sock_diag(7). Unlike /proc/net/unix, it has both ends of a connection, and no name can be
// mistaken for another line.
func unixSockets() ([]unixSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd) //nolint:errcheck // it was only read
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	native := binary.NativeEndian
	request := make([]byte, unix.NLMSG_HDRLEN+diagRequest)
	native.PutUint32(request, uint32(len(request))) //nolint:gosec // 40
	native.PutUint16(request[4:], sockDiagByFamily)
	native.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := request[unix.NLMSG_HDRLEN:]
	body[0] = unix.AF_UNIX
	native.PutUint32(body[4:], 1<<stateConnected|1<<stateListens)
	native.PutUint32(body[12:], showName|showPeer)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	var out []unixSocket
	for buffer := make([]byte, 1<<16); ; {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		done, err := parseSockets(buffer[:n], &out)
		if done || err != nil {
			return out, err
		}
	}
}

// parseSockets adds the sockets of netlink messages, and reports whether the last one was among them.
func parseSockets(data []byte, out *[]unixSocket) (done bool, err error) {
	native := binary.NativeEndian
	for len(data) >= unix.NLMSG_HDRLEN {
		size, kind := int(native.Uint32(data)), native.Uint16(data[4:])
		if size < unix.NLMSG_HDRLEN || size > len(data) {
			return false, fmt.Errorf("a netlink message of %d bytes in %d", size, len(data))
		}
		body := data[unix.NLMSG_HDRLEN:size]
		switch {
		case kind == unix.NLMSG_DONE:
			return true, nil
		case kind == unix.NLMSG_ERROR && len(body) >= 4:
			return false, os.NewSyscallError("sock_diag", unix.Errno(-int32(native.Uint32(body)))) //nolint:gosec // the kernel's
		case kind == sockDiagByFamily && len(body) >= diagMessage:
			s := unixSocket{listens: body[2] == stateListens, inode: native.Uint32(body[4:])}
			s.attributes(body[diagMessage:])
			*out = append(*out, s)
		}
		data = data[min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(data)):]
	}
	return false, nil
}

func (s *unixSocket) attributes(data []byte) {
	native := binary.NativeEndian
	for len(data) >= unix.NLA_HDRLEN {
		size, kind := int(native.Uint16(data)), native.Uint16(data[2:])
		if size < unix.NLA_HDRLEN || size > len(data) {
			return
		}
		switch value := data[unix.NLA_HDRLEN:size]; {
		case kind == attrPeer && len(value) == 4:
			s.peer = native.Uint32(value)
		case kind == attrName && len(value) > 0 && value[0] == '/':
			s.name = strings.TrimRight(string(value), "\x00")
		}
		data = data[min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(data)):]
	}
}
