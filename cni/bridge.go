package cni

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// native is the byte order that the kernel speaks.
var native = binary.NativeEndian

// hostLink is an interface of the host.
type hostLink struct {
	index, master int32
	bridge        bool
}

// hostLinks are the host's interfaces by name; nil where they cannot be read. sysfs would show those of another network
// namespace where it was mounted from one.
func hostLinks() map[string]hostLink {
	dump, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return nil
	}
	messages, err := syscall.ParseNetlinkMessage(dump)
	if err != nil {
		return nil
	}
	links := map[string]hostLink{}
	for i := range messages {
		m := &messages[i]
		attributes, err := syscall.ParseNetlinkRouteAttr(m)
		if m.Header.Type != unix.RTM_NEWLINK || err != nil || len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		link, name := hostLink{index: int32(native.Uint32(m.Data[4:]))}, "" //nolint:gosec // an index is an int32 to the kernel
		for _, a := range attributes {
			switch {
			case a.Attr.Type == unix.IFLA_IFNAME:
				name = text(a.Value)
			case a.Attr.Type == unix.IFLA_MASTER && len(a.Value) == 4:
				link.master = int32(native.Uint32(a.Value)) //nolint:gosec // as above
			case a.Attr.Type == unix.IFLA_LINKINFO:
				link.bridge = kind(a.Value) == "bridge"
			}
		}
		links[name] = link
	}
	return links
}

// kind finds IFLA_INFO_KIND among nested attributes (rtnetlink(7)).
func kind(nested []byte) string {
	for len(nested) >= unix.SizeofRtAttr {
		size := int(native.Uint16(nested))
		if size < unix.SizeofRtAttr || size > len(nested) {
			return ""
		}
		if native.Uint16(nested[2:]) == unix.IFLA_INFO_KIND {
			return text(nested[unix.SizeofRtAttr:size])
		}
		nested = nested[min((size+3)&^3, len(nested)):]
	}
	return ""
}

// text is a string that may end in a zero.
func text(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == 0 {
		b = b[:n-1]
	}
	return string(b)
}

// absentBridges are the bridges that the networks' configurations name, and that are not there yet: ADD makes them, and DEL
// leaves them for the next pod.
func absentBridges(networks []Network) []string {
	now := hostLinks()
	if now == nil {
		return nil
	}
	var absent []string
	for i := range networks {
		for _, p := range networks[i].list.Plugins {
			var conf struct {
				Bridge string `json:"bridge"`
			}
			if p.Network.Type != "bridge" && p.Network.Type != "flannel" || json.Unmarshal(p.Bytes, &conf) != nil {
				continue
			}
			if name := cmp.Or(conf.Bridge, "cni0"); now[name] == (hostLink{}) {
				absent = append(absent, name)
			}
		}
	}
	return absent
}

// dropIdle removes those bridges to which nothing is attached. A pod that is just being attached is attached again by who
// wants it.
func dropIdle(names []string) (notes []string) {
	now := hostLinks()
	for _, name := range names {
		link, there := now[name]
		if !there || !link.bridge || hasPorts(now, link.index) {
			continue
		}
		if err := deleteLink(link.index); err != nil {
			notes = append(notes, fmt.Sprintf("the bridge %s, which was not there before, could not be removed: %v", name, err))
		}
	}
	return notes
}

func hasPorts(links map[string]hostLink, bridge int32) bool {
	for _, l := range links {
		if l.master == bridge {
			return true
		}
	}
	return false
}

// deleteLink removes an interface (rtnetlink(7), RTM_DELLINK); one that is gone is no error.
func deleteLink(index int32) (err error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(s)) }()
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return err
	}
	request := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	native.PutUint32(request[0:], uint32(len(request))) //nolint:gosec // 32 bytes
	native.PutUint16(request[4:], unix.RTM_DELLINK)
	native.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	native.PutUint32(request[unix.SizeofNlMsghdr+4:], uint32(index)) //nolint:gosec // as the kernel has given it
	if err := unix.Sendto(s, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4<<10)
	size, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil {
		return err
	}
	parts, err := syscall.ParseNetlinkMessage(answer[:size])
	if err != nil {
		return err
	}
	for _, part := range parts {
		if part.Header.Type != unix.NLMSG_ERROR || len(part.Data) < 4 {
			continue
		}
		code := int32(native.Uint32(part.Data))            //nolint:gosec // it is signed
		if code == 0 || unix.Errno(-code) == unix.ENODEV { //nolint:gosec // an error's number is negative
			return nil
		}
		return unix.Errno(-code) //nolint:gosec // as above
	}
	return errors.New("the kernel's answer cannot be read")
}
