package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/playlet-dev/playlet/cri/translate"
)

// checkResolver reads what pods get as their resolver's configuration.
func checkResolver(_ context.Context, m *Machine) []Finding {
	file := ptr.Deref(m.Node.Kubelet.ResolverConfig, "")
	if file == "" {
		return ok("pods get none of this machine's (resolvConf is empty)")
	}
	conf, err := translate.ReadResolvConf(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn("name another by resolvConf (with systemd-resolved /run/systemd/resolve/resolv.conf)",
			"%s does not exist: pods get no name servers", file)
	case err != nil:
		return fail("correct it, or name another by resolvConf: pods that need it wait", "%v", err)
	case len(conf.Servers) == 0:
		return warn("name another file by resolvConf, unless pods need no names", "%s names no server", file)
	}
	loopback := true
	for _, server := range conf.Servers {
		addr, err := netip.ParseAddr(server)
		loopback = loopback && err == nil && addr.IsLoopback()
	}
	if loopback {
		return warn("name the file with the real servers by resolvConf (with systemd-resolved /run/systemd/resolve/resolv.conf)",
			"%s names only servers on this machine's loopback, which pods do not reach", file)
	}
	return ok("%s: %s", file, strings.Join(conf.Servers, ", "))
}
