package podspec

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// stopSignals are the signals of Linux that a container may be stopped with (KEP-4960).
var stopSignals = slices.Concat([]v1.Signal{
	v1.SIGABRT, v1.SIGALRM, v1.SIGBUS, v1.SIGCHLD, v1.SIGCLD, v1.SIGCONT, v1.SIGFPE, v1.SIGHUP, v1.SIGILL, v1.SIGINT,
	v1.SIGIO, v1.SIGIOT, v1.SIGKILL, v1.SIGPIPE, v1.SIGPOLL, v1.SIGPROF, v1.SIGPWR, v1.SIGQUIT, v1.SIGSEGV,
	v1.SIGSTKFLT, v1.SIGSTOP, v1.SIGSYS, v1.SIGTERM, v1.SIGTRAP, v1.SIGTSTP, v1.SIGTTIN, v1.SIGTTOU, v1.SIGURG,
	v1.SIGUSR1, v1.SIGUSR2, v1.SIGVTALRM, v1.SIGWINCH, v1.SIGXCPU, v1.SIGXFSZ, v1.SIGRTMIN, v1.SIGRTMAX,
}, numbered("SIGRTMIN+", 15), numbered("SIGRTMAX-", 14))

func numbered(prefix string, last int) []v1.Signal {
	var signals []v1.Signal
	for i := 1; i <= last; i++ {
		signals = append(signals, v1.Signal(fmt.Sprintf("%s%d", prefix, i)))
	}
	return signals
}

// stopSignal checks a signal against the operating system, which must be named because the signals of Windows differ.
func (v *validator) stopSignal(signal *v1.Signal, at *field.Path) {
	if signal == nil {
		return
	}
	if v.spec.OS == nil {
		v.forbidden(at, "needs spec.os.name")
		return
	}
	ifSet(&v.checker, at, signal, stopSignals...)
}
