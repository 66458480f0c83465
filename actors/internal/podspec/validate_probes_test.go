package podspec

import "testing"

func TestValidateProbes(t *testing.T) {
	const c = "spec.containers[0]."
	checkWrong(t, []wrong{
		{"does nothing", aContainer("livenessProbe: {}"), []string{c + "livenessProbe: Required value"}},
		{"does two things", aContainer("livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}"),
			[]string{c + "livenessProbe: Forbidden"}},
		{"no command", aContainer("readinessProbe: {exec: {}}"), []string{c + "readinessProbe.exec.command: Required value"}},
		{"port", aContainer("readinessProbe: {httpGet: {port: 0}}"), []string{c + "readinessProbe.httpGet.port: Invalid value"}},
		{"named port", aContainer("readinessProbe: {tcpSocket: {port: '-'}}"),
			[]string{c + "readinessProbe.tcpSocket.port: Invalid value"}},
		{"scheme", aContainer("readinessProbe: {httpGet: {port: 1, scheme: http}}"),
			[]string{c + "readinessProbe.httpGet.scheme: Unsupported value"}},
		{"header", aContainer("readinessProbe: {httpGet: {port: 1, httpHeaders: [{name: 'A B', value: c}, {value: d}]}}"),
			[]string{c + "readinessProbe.httpGet.httpHeaders[0].name: Invalid value",
				c + "readinessProbe.httpGet.httpHeaders[1].name: Required value"}},
		{"gRPC", aContainer("readinessProbe: {grpc: {port: 70000, mode: QUIC}}"),
			[]string{c + "readinessProbe.grpc.port: Invalid value", c + "readinessProbe.grpc.mode: Unsupported value"}},
		{"negatives", aContainer("readinessProbe: {exec: {command: [a]}, initialDelaySeconds: -1, timeoutSeconds: -1, " +
			"periodSeconds: -1, successThreshold: -1, failureThreshold: -1}"),
			[]string{c + "readinessProbe.initialDelaySeconds: Invalid value", c + "readinessProbe.timeoutSeconds: Invalid value",
				c + "readinessProbe.periodSeconds: Invalid value", c + "readinessProbe.successThreshold: Invalid value",
				c + "readinessProbe.failureThreshold: Invalid value"}},
		{"thresholds", aContainer("livenessProbe: {exec: {command: [a]}, successThreshold: 2}\n" +
			"startupProbe: {exec: {command: [a]}, successThreshold: 2}"),
			[]string{c + "livenessProbe.successThreshold: Invalid value", c + "startupProbe.successThreshold: Invalid value"}},
		{"grace", aContainer("livenessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 0}\n" +
			"readinessProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 1}"),
			[]string{c + "livenessProbe.terminationGracePeriodSeconds: Invalid value",
				c + "readinessProbe.terminationGracePeriodSeconds: Invalid value"}},
	})
	checkRight(t, map[string]string{
		"all": aContainer("livenessProbe: {grpc: {port: 1, mode: TLS}, terminationGracePeriodSeconds: 1}\n" +
			"readinessProbe: {httpGet: {port: web, scheme: HTTPS, httpHeaders: [{name: Host, value: a}]}, successThreshold: 3}\n" +
			"startupProbe: {tcpSocket: {port: 65535}}"),
	})
}

func TestValidateLifecycle(t *testing.T) {
	const l = "spec.containers[0].lifecycle."
	checkWrong(t, []wrong{
		{"does nothing", aContainer("lifecycle: {preStop: {}, postStart: {}}"),
			[]string{l + "postStart: Required value", l + "preStop: Required value"}},
		{"does two things", aContainer("lifecycle: {preStop: {sleep: {seconds: 1}, exec: {command: [a]}}}"),
			[]string{l + "preStop: Forbidden"}},
		{"sleeps too long", aContainer("lifecycle: {preStop: {sleep: {seconds: 31}}}"),
			[]string{l + "preStop.sleep.seconds: Invalid value"}},
		{"sleeps backwards", aContainer("lifecycle: {preStop: {sleep: {seconds: -1}}}"),
			[]string{l + "preStop.sleep.seconds: Invalid value"}},
		{"signal of nobody", aContainer("lifecycle: {stopSignal: SIGTERM}"), []string{l + "stopSignal: Forbidden"}},
		{"signal", aPod("os: {name: linux}\ncontainers: [{name: a, image: b, lifecycle: {stopSignal: TERM}}]"),
			[]string{l + "stopSignal: Unsupported value"}},
		{"real-time signal", aPod("os: {name: linux}\ncontainers: [{name: a, image: b, lifecycle: {stopSignal: SIGRTMIN+16}}]"),
			[]string{l + "stopSignal: Unsupported value"}},
	})
	checkRight(t, map[string]string{
		"sleep":  aContainer("lifecycle: {preStop: {sleep: {seconds: 30}}, postStart: {sleep: {seconds: 0}}}"),
		"signal": aPod("os: {name: linux}\ncontainers: [{name: a, image: b, lifecycle: {stopSignal: SIGRTMAX-14}}]"),
	})
}
