package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// native is the byte order that the kernel speaks.
var native = binary.NativeEndian

// message returns a message of netlink(7): a header with the total length, and the body.
func message(kind, flags uint16, body []byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(body))
	native.PutUint32(b[0:], uint32(unix.SizeofNlMsghdr+len(body))) //nolint:gosec // some hundred bytes
	native.PutUint16(b[4:], kind)
	native.PutUint16(b[6:], flags|unix.NLM_F_REQUEST)
	return append(b, body...)
}

// attribute is one with a string, ended by a zero and filled up to four bytes.
func attribute(kind uint16, text string) []byte {
	const header = 4
	length := header + len(text) + 1
	b := make([]byte, (length+3)&^3)
	native.PutUint16(b[0:], uint16(length)) //nolint:gosec // a name
	native.PutUint16(b[2:], kind)
	copy(b[header:], text)
	return b
}

// request sends messages and returns the error, or nil, of each expected acknowledgement, in their order.
func request(family int, messages []byte, acknowledgements int) (answers []error, err error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Close(s)) }()
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return nil, err
	}
	if err := unix.Sendto(s, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	buffer := make([]byte, 16<<10)
	for len(answers) < acknowledgements {
		n, _, err := unix.Recvfrom(s, buffer, 0)
		if err != nil {
			return nil, err
		}
		parts, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return nil, err
		}
		for _, part := range parts {
			answers = append(answers, acknowledged(part))
		}
	}
	return answers, nil
}

// acknowledged reads NLMSG_ERROR, which is an acknowledgement where its number is 0.
func acknowledged(m syscall.NetlinkMessage) error {
	if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 {
		return fmt.Errorf("an answer of type %d, %x", m.Header.Type, m.Data)
	}
	if code := int32(native.Uint32(m.Data)); code != 0 { //nolint:gosec // it is signed
		return unix.Errno(-code) //nolint:gosec // an error's number is negative
	}
	return nil
}

// deleteLink removes a network interface (rtnetlink(7), RTM_DELLINK); one that is not there is no error.
func deleteLink(index int) error {
	info := make([]byte, unix.SizeofIfInfomsg)
	native.PutUint32(info[4:], uint32(int32(index))) //nolint:gosec // an index is an int32 to the kernel
	answers, err := request(unix.NETLINK_ROUTE, message(unix.RTM_DELLINK, unix.NLM_F_ACK, info), 1)
	if err != nil || errors.Is(answers[0], unix.ENODEV) {
		return err
	}
	return answers[0]
}

// link is a network interface.
type link struct {
	index, master int
	name, kind    string
}

// links lists the interfaces of this network namespace. /sys would list those of the namespace in which it was mounted.
func links() ([]link, error) {
	dump, err := syscall.NetlinkRIB(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(dump)
	if err != nil {
		return nil, err
	}
	var out []link
	for _, m := range messages {
		if m.Header.Type != syscall.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return nil, err
		}
		l := link{index: int(native.Uint32(m.Data[4:]))}
		for _, a := range attributes {
			switch a.Attr.Type {
			case unix.IFLA_IFNAME:
				l.name = zeroEnded(a.Value)
			case unix.IFLA_MASTER:
				l.master = int(native.Uint32(a.Value))
			case unix.IFLA_LINKINFO:
				l.kind = kindOf(a.Value)
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// kindOf finds IFLA_INFO_KIND among nested attributes.
func kindOf(info []byte) string {
	for len(info) >= 4 {
		length := int(native.Uint16(info))
		if length < 4 || length > len(info) {
			return ""
		}
		if native.Uint16(info[2:]) == unix.IFLA_INFO_KIND {
			return zeroEnded(info[4:length])
		}
		info = info[min((length+3)&^3, len(info)):]
	}
	return ""
}

func zeroEnded(b []byte) string {
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}

// removeBridge removes the bridge and the host ends of the pods' remaining veth pairs on it. Another kind of interface with its
// name is left alone.
func removeBridge(name string) error {
	all, err := links()
	if err != nil {
		return err
	}
	var errs []error
	for _, bridge := range all {
		if bridge.name != name || bridge.kind != "bridge" {
			continue
		}
		for _, port := range all {
			if port.master == bridge.index {
				errs = append(errs, deleteLink(port.index))
			}
		}
		errs = append(errs, deleteLink(bridge.index))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing the bridge %s: %w", name, err)
	}
	return nil
}
