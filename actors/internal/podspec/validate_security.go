package podspec

import (
	"fmt"
	"regexp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	nodesysctl "k8s.io/component-helpers/node/util/sysctl"
	"k8s.io/utils/ptr"
)

const (
	maxAppArmorName = 4095 // one less than PATH_MAX
	maxSysctlName   = 253
)

// sysctlName matches both forms, net.ipv4.tcp_syncookies and net/ipv4/tcp_syncookies (sysctl.d(5)).
var sysctlName = regexp.MustCompile(`^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`)

// hostUsers checks that a pod with a user namespace of its own has no other namespace of the host (KEP-127).
func (v *validator) hostUsers(spec *field.Path) {
	if ptr.Deref(v.spec.HostUsers, true) {
		return
	}
	const why = "hostUsers is false"
	for _, namespace := range []struct {
		name string
		used bool
	}{{"hostNetwork", v.spec.HostNetwork}, {"hostPID", v.spec.HostPID}, {"hostIPC", v.spec.HostIPC}} {
		if namespace.used {
			v.forbidden(spec.Child(namespace.name), why)
		}
	}
	for c, at := range Containers(v.spec, spec) {
		if len(c.VolumeDevices) > 0 {
			v.forbidden(at.Child("volumeDevices"), why)
		}
	}
}

func (v *validator) podSecurity(spec *field.Path) {
	v.hostUsers(spec)
	at := spec.Child("securityContext")
	if v.spec.HostPID && ptr.Deref(v.spec.ShareProcessNamespace, false) {
		v.invalid(spec.Child("shareProcessNamespace"), true, "the containers already share the host's, by hostPID")
	}
	sc := v.spec.SecurityContext
	if sc == nil {
		return
	}
	v.runAs(sc.RunAsUser, sc.RunAsGroup, at)
	for i, group := range sc.SupplementalGroups {
		v.invalid(at.Child("supplementalGroups").Index(i), group, validation.IsValidGroupID(group)...)
	}
	if sc.FSGroup != nil {
		v.invalid(at.Child("fsGroup"), *sc.FSGroup, validation.IsValidGroupID(*sc.FSGroup)...)
	}
	ifSet(&v.checker, at.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy,
		v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)
	ifSet(&v.checker, at.Child("fsGroupChangePolicy"), sc.FSGroupChangePolicy,
		v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)
	v.sysctls(sc.Sysctls, at.Child("sysctls"))
	v.seccomp(sc.SeccompProfile, at.Child("seccompProfile"))
	v.appArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))
}

func (v *validator) containerSecurity(sc *v1.SecurityContext, at *field.Path) {
	if sc == nil {
		return
	}
	v.runAs(sc.RunAsUser, sc.RunAsGroup, at)
	ifSet(&v.checker, at.Child("procMount"), sc.ProcMount, v1.DefaultProcMount, v1.UnmaskedProcMount)
	if ptr.Deref(sc.ProcMount, v1.DefaultProcMount) == v1.UnmaskedProcMount && ptr.Deref(v.spec.HostUsers, true) {
		v.invalid(at.Child("procMount"), v1.UnmaskedProcMount, "hostUsers must be false for it")
	}
	v.seccomp(sc.SeccompProfile, at.Child("seccompProfile"))
	v.appArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))
	if ptr.Deref(sc.AllowPrivilegeEscalation, true) {
		return
	}
	escalation := at.Child("allowPrivilegeEscalation")
	if ptr.Deref(sc.Privileged, false) {
		v.invalid(escalation, false, "a privileged container has nothing left to gain; privileged may not be true")
	}
	if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
		v.invalid(escalation, false, "CAP_SYS_ADMIN may not be among the capabilities added")
	}
}

func (v *validator) runAs(user, group *int64, at *field.Path) {
	if user != nil {
		v.invalid(at.Child("runAsUser"), *user, validation.IsValidUserID(*user)...)
	}
	if group != nil {
		v.invalid(at.Child("runAsGroup"), *group, validation.IsValidGroupID(*group)...)
	}
}

func (v *validator) sysctls(sysctls []v1.Sysctl, at *field.Path) {
	seen := map[string]bool{}
	for i, sysctl := range sysctls {
		here := at.Index(i).Child("name")
		v.name(here, sysctl.Name, func(name string) []string {
			if len(name) > maxSysctlName || !sysctlName.MatchString(name) {
				return []string{fmt.Sprintf("must be parts of a-z, 0-9, - and _ joined by . or /, "+
					"%d characters at most", maxSysctlName)}
			}
			return nil
		})
		v.unique(here, seen, sysctl.Name)
		switch space, _, _ := nodesysctl.GetNamespace(sysctl.Name); {
		case space == nodesysctl.NetNamespace && v.spec.HostNetwork:
			v.invalid(here, sysctl.Name, "would change the host, by hostNetwork")
		case space == nodesysctl.IPCNamespace && v.spec.HostIPC:
			v.invalid(here, sysctl.Name, "would change the host, by hostIPC")
		}
	}
}

func (v *validator) seccomp(profile *v1.SeccompProfile, at *field.Path) {
	if profile == nil {
		return
	}
	if file := v.profile(string(profile.Type), profile.LocalhostProfile, at); file != "" {
		v.pathInside(at.Child("localhostProfile"), file)
	}
}

func (v *validator) appArmor(profile *v1.AppArmorProfile, at *field.Path) {
	if profile == nil {
		return
	}
	if name := v.profile(string(profile.Type), profile.LocalhostProfile, at); name != "" && !isAppArmorName(name) {
		v.invalid(at.Child("localhostProfile"), name,
			fmt.Sprintf("must have 1 to %d characters and no space before or after it", maxAppArmorName))
	}
}

// profile checks a profile's type, and that it has a name exactly if it is Localhost; it returns the name.
func (v *validator) profile(kind string, name *string, at *field.Path) string {
	oneOf(&v.checker, at.Child("type"), kind, "Localhost", "RuntimeDefault", "Unconfined")
	switch localhost := kind == "Localhost"; {
	case localhost && ptr.Deref(name, "") == "":
		v.required(at.Child("localhostProfile"), "type Localhost needs it")
	case localhost:
		return *name
	case name != nil:
		v.invalid(at.Child("localhostProfile"), *name, "only type Localhost may have it")
	}
	return ""
}
