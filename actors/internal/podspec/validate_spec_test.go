package podspec

import (
	"strings"
	"testing"
)

func TestValidateSecurity(t *testing.T) {
	const s, c = "spec.securityContext.", "spec.containers[0].securityContext."
	checkWrong(t, []wrong{
		{"users", aPod("securityContext: {runAsUser: -1, runAsGroup: 4294967296, supplementalGroups: [1, -1], fsGroup: -1}"),
			[]string{s + "runAsUser: Invalid value", s + "runAsGroup: Invalid value",
				s + "supplementalGroups[1]: Invalid value", s + "fsGroup: Invalid value"}},
		{"policies", aPod("securityContext: {supplementalGroupsPolicy: A, fsGroupChangePolicy: B}"),
			[]string{s + "supplementalGroupsPolicy: Unsupported value", s + "fsGroupChangePolicy: Unsupported value"}},
		{"sysctls", aPod("securityContext: {sysctls: [{name: ''}, {name: 'A b'}, {name: kernel.x}, {name: kernel.x}]}"),
			[]string{s + "sysctls[0].name: Required value", s + "sysctls[1].name: Invalid value",
				s + "sysctls[3].name: Duplicate value"}},
		{"the host's sysctls",
			aPod("hostNetwork: true\nhostIPC: true\nsecurityContext: {sysctls: [{name: net/ipv4/x}, {name: kernel.sem}, {name: vm.x}]}"),
			[]string{s + "sysctls[0].name: Invalid value", s + "sysctls[1].name: Invalid value"}},
		{"seccomp", aPod("securityContext: {seccompProfile: {type: Mine}}"),
			[]string{s + "seccompProfile.type: Unsupported value"}},
		{"no type", aPod("securityContext: {seccompProfile: {}, appArmorProfile: {}}"),
			[]string{s + "seccompProfile.type: Required value", s + "appArmorProfile.type: Required value"}},
		{"no file", aPod("securityContext: {seccompProfile: {type: Localhost}, appArmorProfile: {type: Localhost}}"),
			[]string{s + "seccompProfile.localhostProfile: Required value", s +
				"appArmorProfile.localhostProfile: Required value"}},
		{"file out", aContainer("securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../a}}"),
			[]string{c + "seccompProfile.localhostProfile: Invalid value"}},
		{"needless file", aContainer("securityContext: {seccompProfile: {type: Unconfined, localhostProfile: a}, " +
			"appArmorProfile: {type: RuntimeDefault, localhostProfile: a}}"),
			[]string{c + "seccompProfile.localhostProfile: Invalid value", c +
				"appArmorProfile.localhostProfile: Invalid value"}},
		{"AppArmor", aContainer("securityContext: {appArmorProfile: {type: Localhost, localhostProfile: ' a'}}"),
			[]string{c + "appArmorProfile.localhostProfile: Invalid value"}},
		{"container's user", aContainer("securityContext: {runAsUser: -1, runAsGroup: -1}"),
			[]string{c + "runAsUser: Invalid value", c + "runAsGroup: Invalid value"}},
		{"proc", aContainer("securityContext: {procMount: Half}"), []string{c + "procMount: Unsupported value"}},
		{"proc of the host", aContainer("securityContext: {procMount: Unmasked}"),
			[]string{c + "procMount: Invalid value"}},
		{"own users", aPod("hostUsers: false"), nil},
		{"own users on the host", aPod("hostUsers: false\nhostNetwork: true\nhostPID: true\nhostIPC: true"), []string{
			"spec.hostNetwork: Forbidden", "spec.hostPID: Forbidden",
			"spec.hostIPC: Forbidden"}},
		{"privileged and not", aContainer("securityContext: {privileged: true, allowPrivilegeEscalation: false}"),
			[]string{c + "allowPrivilegeEscalation: Invalid value"}},
		{"capable and not",
			aContainer("securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}, allowPrivilegeEscalation: false}"),
			[]string{c + "allowPrivilegeEscalation: Invalid value"}},
		{"two ways to share processes", aPod("hostPID: true\nshareProcessNamespace: true"),
			[]string{"spec.shareProcessNamespace: Invalid value"}},
	})
	checkRight(t, map[string]string{
		"pod": aPod("hostPID: true\nshareProcessNamespace: false\nsecurityContext: {runAsUser: 0, fsGroup: 2147483647, " +
			"supplementalGroupsPolicy: Strict, sysctls: [{name: net.ipv4.ip_forward, value: '1'}], seccompProfile: {type: RuntimeDefault}}"),
		"container": aContainer("securityContext: {privileged: true, allowPrivilegeEscalation: true, capabilities: {add: [CAP_SYS_ADMIN]}, " +
			"procMount: Default, seccompProfile: {type: Localhost, localhostProfile: a/b.json}, appArmorProfile: {type: Localhost, localhostProfile: a}}"),
	})
}

func TestValidateNetwork(t *testing.T) {
	checkWrong(t, []wrong{
		{"DNS policy", aPod("dnsPolicy: Mine"), []string{"spec.dnsPolicy: Unsupported value"}},
		{"no DNS", aPod("dnsPolicy: None"), []string{"spec.dnsConfig.nameservers: Required value"}},
		{"no DNS server", aPod("dnsPolicy: None\ndnsConfig: {searches: [a]}"),
			[]string{"spec.dnsConfig.nameservers: Required value"}},
		{"DNS servers", aPod("dnsConfig: {nameservers: [1.2.3.4, a, 010.0.0.1, '::1']}"),
			[]string{"spec.dnsConfig.nameservers: Too many", "spec.dnsConfig.nameservers[1]: Invalid value",
				"spec.dnsConfig.nameservers[2]: Invalid value"}},
		{"searches", aPod("dnsConfig: {searches: ['A', a..b]}"),
			[]string{"spec.dnsConfig.searches[0]: Invalid value", "spec.dnsConfig.searches[1]: Invalid value"}},
		{"many searches", aPod("dnsConfig: {searches: [" + strings.Repeat("a,", 33) + "]}"),
			[]string{"spec.dnsConfig.searches: Too many"}},
		{"long searches", aPod("dnsConfig: {searches: [" + strings.Repeat(strings.Repeat("a.", 100)+"a,", 11) + "]}"),
			[]string{"spec.dnsConfig.searches: Too long"}},
		{"option", aPod("dnsConfig: {options: [{value: a}]}"), []string{"spec.dnsConfig.options[0].name: Required value"}},
		{"host alias", aPod("hostAliases: [{ip: a, hostnames: [b, 'B']}]"),
			[]string{"spec.hostAliases[0].ip: Invalid value", "spec.hostAliases[0].hostnames[1]: Invalid value"}},
		{"host name", aPod("hostname: a.b\nsubdomain: A"),
			[]string{"spec.hostname: Invalid value", "spec.subdomain: Invalid value"}},
		{"other host name", aPod("hostnameOverride: a\nhostNetwork: true\nsetHostnameAsFQDN: true"),
			[]string{"spec.hostnameOverride: Forbidden"}},
		{"long host name", aPod("hostnameOverride: " + strings.Repeat("a", 65)),
			[]string{"spec.hostnameOverride: Invalid value"}},
	})
	checkRight(t, map[string]string{
		"DNS":   aPod("dnsPolicy: None\ndnsConfig: {nameservers: [1.2.3.4, '2001:db8::1'], searches: [a_b.c, a., .], options: [{name: ndots, value: '2'}, {name: a}]}"),
		"names": aPod("hostAliases: [{ip: 10.0.0.1, hostnames: [a.b, c]}]\nhostname: a\nsubdomain: b\nsetHostnameAsFQDN: true"),
	})
}

func TestValidateScheduling(t *testing.T) {
	checkWrong(t, []wrong{
		{"node selector", aPod("nodeSelector: {a: 'b c'}"), []string{"spec.nodeSelector: Invalid value"}},
		{"tolerations",
			aPod("tolerations:\n- {value: a}\n- {key: 'a b', operator: Exists, value: c}\n- {key: a, effect: Never}\n" +
				"- {key: a, tolerationSeconds: 1}\n- {key: a, operator: Is}\n- {key: a, operator: Gt, value: x}\n- {key: a, value: 'b c'}"),
			[]string{"spec.tolerations[0].operator: Invalid value", "spec.tolerations[1].key: Invalid value",
				"spec.tolerations[1].value: Invalid value", "spec.tolerations[2].effect: Unsupported value",
				"spec.tolerations[3].effect: Invalid value", "spec.tolerations[4].operator: Unsupported value",
				"spec.tolerations[5].value: Invalid value", "spec.tolerations[6].value: Invalid value"}},
	})
	checkRight(t, map[string]string{
		"much": aPod("nodeSelector: {a/b: c}\n" +
			"tolerations: [{operator: Exists}, {key: a, operator: Equal, value: b, effect: NoExecute, tolerationSeconds: 1}, {key: a, operator: Lt, value: '-3'}]\n" +
			"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" +
			"{matchFields: [{key: metadata.name, operator: In, values: [n]}], matchExpressions: [{key: a, operator: Exists}, {key: a, operator: Gt, values: ['1']}]}]}}}"),
		"what no node reads": aPod("topologySpreadConstraints: [{maxSkew: 0}]\nschedulingGates: [{name: a}]\n" +
			"affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: ''}]}}"),
	})
}

func TestValidateAffinity(t *testing.T) {
	const terms = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
	checkWrong(t, []wrong{
		{"no node terms",
			aPod("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}"),
			[]string{terms + ": Required value"}},
		{"node terms",
			aPod("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [" +
				"{key: a, operator: In}, {key: a, operator: Exists, values: [b]}, {key: a, operator: Gt, values: ['1', '2']}, {key: a, operator: Is}, " +
				"{key: 'a b', operator: In, values: ['c d']}], matchFields: [{key: spec.x, operator: Exists, values: [a]}, " +
				"{key: metadata.name, operator: In}]}]}}}"),
			[]string{
				terms + "[0].matchExpressions[0].values: Invalid value",
				terms + "[0].matchExpressions[1].values: Invalid value",
				terms + "[0].matchExpressions[2].values: Invalid value",
				terms + "[0].matchExpressions[3].operator: Unsupported value",
				terms + "[0].matchExpressions[4].key: Invalid value",
				terms + "[0].matchExpressions[4].values[0][a b]: Invalid value",
				terms + "[0].matchFields[0].operator: Unsupported value",
				terms + "[0].matchFields[1].values: Invalid value",
				terms + "[0].matchFields[0].key: Unsupported value"}},
	})
}
