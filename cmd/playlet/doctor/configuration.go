package doctor

import (
	"context"
	"slices"
	"strings"

	"github.com/playlet-dev/playlet/actors/resources"
)

// checkConfiguration says which configuration is looked at, and what of it does nothing. One that cannot be read has ended
// the command before.
func checkConfiguration(_ context.Context, m *Machine) []Finding {
	from := "flags and defaults"
	switch {
	case m.Node.ConfigFile != "" && m.Node.ConfigDir != "":
		from = m.Node.ConfigFile + " and " + m.Node.ConfigDir
	case m.Node.ConfigFile != "" || m.Node.ConfigDir != "":
		from = m.Node.ConfigFile + m.Node.ConfigDir
	}
	if m.OtherConfig != "" {
		return warn("playlet doctor --config="+m.OtherConfig,
			"%s: the machine was looked at for these, and not for %s, which is "+
				"there", from, m.OtherConfig)
	}
	if err := m.Node.CheckCPUs(resources.OnlineCPUs(m.Sys)); err != nil {
		return fail("correct the field that is named; the agent does not start with it", "%s: %v", from, err)
	}
	if len(m.Warnings) == 0 {
		return ok("%s; node %s, root folder %s", from, m.Node.NodeName, m.Node.RootDir)
	}
	var named, whole []string
	for _, w := range m.Warnings {
		named = append(named, w.Flag)
		whole = append(whole, w.Flag+": "+w.Message)
	}
	const readable = 3
	if len(whole) <= readable {
		return warn("take out what is not needed", "%s; %s", from, strings.Join(whole, "; "))
	}
	slices.Sort(named)
	return warn("the agent's log says more of each when it starts; take out what is not needed",
		"%s; these settings are without effect, outdated, or open: %s", from, strings.Join(slices.Compact(named), ", "))
}
