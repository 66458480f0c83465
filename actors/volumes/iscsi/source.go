package iscsi

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// PluginName is the kubelet's name for the kind of volume.
const PluginName = "kubernetes.io/iscsi"

// Source is a logical unit of a target, and the initiator that logs in.
type Source struct {
	Volume    string   // the name of the PersistentVolume, or of the pod's own volume
	Portal    string   // as in the spec; it is a part of the volume's name on the Node
	Others    []string // further portals of the target, as in the spec
	Target    string   // the target's name, e.g. iqn.2001-04.com.example:disk
	LUN       int32
	Interface string // of open-iscsi; the default is "default"
	Initiator string // the initiator's name; empty: the one of Interface
	FSType    string
	Options   []string // of the mount
	ReadOnly  bool
	CHAP      bool   // the target authenticates the initiator
	Discovery bool   // the kubelet's discovery is authenticated; this agent logs in without a discovery
	Secret    string // the name of the Secret with the password; empty: none
	Namespace string // of the Secret; empty: the pod's
}

// Inline returns the source of a pod's own volume.
func Inline(name string, v *v1.ISCSIVolumeSource) Source {
	s := Source{Volume: name, Portal: v.TargetPortal, Others: v.Portals, Target: v.IQN, LUN: v.Lun,
		Interface: cmp.Or(v.ISCSIInterface, defaultInterface), FSType: v.FSType, ReadOnly: v.ReadOnly,
		CHAP: v.SessionCHAPAuth, Discovery: v.DiscoveryCHAPAuth}
	if v.InitiatorName != nil {
		s.Initiator = *v.InitiatorName
	}
	if v.SecretRef != nil {
		s.Secret = v.SecretRef.Name
	}
	return s
}

// OfVolume returns the source of a PersistentVolume. As in the kubelet, it is read-only if its claim is used so.
func OfVolume(pv *v1.PersistentVolume, readOnly bool) Source {
	v := pv.Spec.ISCSI
	s := Inline(pv.Name, &v1.ISCSIVolumeSource{TargetPortal: v.TargetPortal, IQN: v.IQN, Lun: v.Lun, FSType: v.FSType,
		ISCSIInterface: v.ISCSIInterface, ReadOnly: readOnly, Portals: v.Portals, DiscoveryCHAPAuth: v.DiscoveryCHAPAuth,
		SessionCHAPAuth: v.SessionCHAPAuth, InitiatorName: v.InitiatorName})
	s.Options = pv.Spec.MountOptions
	if v.SecretRef != nil {
		s.Secret, s.Namespace = v.SecretRef.Name, v.SecretRef.Namespace
	}
	return s
}

const (
	defaultInterface = "default"
	defaultPort      = "3260"
	maxLUN           = 255 // of the API
	maxPortals       = 16
)

// names are the formats of the names of targets and initiators (RFC 3720, section 3.2.6).
var names = regexp.MustCompile(`^(iqn\.\d{4}-\d{2}\.[[:alnum:].-]+(:[^,;*&$|\s/]+)?|eui\.[[:xdigit:]]{16}|` +
	`naa\.[[:xdigit:]]{16}([[:xdigit:]]{16})?)$`)

// Check returns an error if the source cannot be used: a text is missing, or cannot be an argument of iscsiadm or a part of a
// folder's name.
func (s Source) Check() error {
	for name, text := range map[string]string{"iqn": s.Target, "initiatorName": s.Initiator} {
		if text != "" && !names.MatchString(text) || name == "iqn" && text == "" {
			return fmt.Errorf("the %s %q is no name of iSCSI: iqn.…, eui.… or naa.… is needed", name, text)
		}
	}
	for _, p := range append([]string{s.Portal}, s.Others...) {
		if !isPortal(p) {
			return fmt.Errorf("the portal %q is not host or host:port", p)
		}
	}
	switch {
	case len(s.Others) >= maxPortals:
		return fmt.Errorf("the volume has more than %d portals", maxPortals)
	case s.LUN < 0 || s.LUN > maxLUN:
		return fmt.Errorf("the lun %d is not between 0 and %d", s.LUN, maxLUN)
	case !isWord(s.Interface):
		return fmt.Errorf("%q is no iscsiInterface", s.Interface)
	case s.Initiator != "" && s.Initiator == s.Target:
		return errors.New("initiatorName and iqn are the same")
	case s.CHAP && s.Secret == "":
		return errors.New("chapAuthSession needs a secretRef")
	}
	for _, o := range s.Options {
		if strings.ContainsFunc(o, unicode.IsControl) {
			return fmt.Errorf("the mount option %q has control characters", o)
		}
	}
	return errors.Join(safepath.CheckElement(s.folder()), safepath.CheckElement("iface-"+s.iface()))
}

// isWord reports whether a text can be an argument and a part of a file's name.
func isWord(text string) bool {
	return text != "" && text[0] != '-' && text[0] != '.' && !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || r == '/' || r == ','
	})
}

func isPortal(text string) bool {
	host, port := split(text)
	n, err := strconv.ParseUint(port, 10, 16)
	return isWord(text) && isWord(host) && err == nil && n > 0
}

// split returns the host of a portal, without brackets, and the port.
func split(portal string) (host, port string) {
	if host, port, err := net.SplitHostPort(portal); err == nil {
		return host, port
	}
	return strings.Trim(portal, "[]"), defaultPort
}

// isSame reports whether two texts are the same portal.
func isSame(a, b string) bool {
	hostA, portA := split(a)
	hostB, portB := split(b)
	ipA, ipB := net.ParseIP(hostA), net.ParseIP(hostB)
	return portA == portB && (strings.EqualFold(hostA, hostB) || ipA != nil && ipA.Equal(ipB))
}

// withPort returns a portal as the kubelet writes it: it adds the default port to a text without a colon.
func withPort(portal string) string {
	if strings.Contains(portal, ":") {
		return portal
	}
	return portal + ":" + defaultPort
}

// portals returns all portals, each once.
func (s Source) portals() (out []string) {
	for _, p := range append([]string{s.Portal}, s.Others...) {
		if p = withPort(p); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// iface returns the interface of the sessions: one of the volume's own if the initiator has a name, as in the kubelet.
func (s Source) iface() string {
	if s.Initiator == "" {
		return s.Interface
	}
	return withPort(s.Portal) + ":" + s.Volume
}

// UniqueName returns the name of the volume on the Node.
func (s Source) UniqueName() string {
	return fmt.Sprintf("%s/%s:%s:%d", PluginName, s.Portal, s.Target, s.LUN)
}

// folder returns the name of the volume's folder within the one of the interface, as in the kubelet.
func (s Source) folder() string {
	return fmt.Sprintf("%s-%s-lun-%d", withPort(s.Portal), s.Target, s.LUN)
}

// Folder returns the path of the volume's mount for the node, below the folder Top.
func (s Source) Folder() string { return "iface-" + s.iface() + "/" + s.folder() }

// String returns the logical unit for messages.
func (s Source) String() string {
	return fmt.Sprintf("lun %d of target %s at portal %s", s.LUN, s.Target, withPort(s.Portal))
}
