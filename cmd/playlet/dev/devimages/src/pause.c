/* pause holds a pod's namespaces: it waits, reaps what is orphaned to it, and ends at once on TERM or INT. */
#include "sys.h"

ENTRY

__attribute__((noreturn, used)) void program(long *stack)
{
	sigset set = SIGBIT(SIGTERM) | SIGBIT(SIGINT) | SIGBIT(SIGCHLD);

	(void)stack;
	block(set);
	for (;;) {
		long sig = SYS4(rt_sigtimedwait, &set, 0, 0, SIGSET_BYTES);
		if (sig == SIGTERM || sig == SIGINT)
			quit(0);
		reap();
	}
}
