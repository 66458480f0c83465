/* Linux system calls for amd64 and arm64 without a C library.
 *
 * Only what pause and hello need. Calls give the kernel's answer: a value, or a negated errno.
 */
#ifndef SYS_H
#define SYS_H

#if defined(__x86_64__)
enum {
	NR_read = 0, NR_write = 1, NR_close = 3, NR_mmap = 9, NR_rt_sigprocmask = 14,
	NR_setitimer = 38, NR_socket = 41, NR_shutdown = 48, NR_bind = 49, NR_listen = 50,
	NR_setsockopt = 54, NR_clone = 56, NR_wait4 = 61, NR_uname = 63, NR_getcwd = 79, NR_getuid = 102,
	NR_getgid = 104, NR_getgroups = 115, NR_rt_sigtimedwait = 128, NR_prctl = 157,
	NR_exit_group = 231, NR_openat = 257, NR_faccessat = 269, NR_ppoll = 271,
	NR_accept4 = 288, NR_signalfd4 = 289,
};
#elif defined(__aarch64__)
enum {
	NR_getcwd = 17, NR_faccessat = 48, NR_openat = 56, NR_close = 57, NR_read = 63, NR_write = 64,
	NR_ppoll = 73, NR_signalfd4 = 74, NR_exit_group = 94, NR_setitimer = 103,
	NR_rt_sigprocmask = 135, NR_rt_sigtimedwait = 137, NR_getgroups = 158, NR_uname = 160,
	NR_prctl = 167, NR_getuid = 174, NR_getgid = 176, NR_socket = 198, NR_bind = 200,
	NR_listen = 201, NR_setsockopt = 208, NR_shutdown = 210, NR_clone = 220, NR_mmap = 222,
	NR_accept4 = 242, NR_wait4 = 260,
};
#else
#error "only amd64 and arm64"
#endif

enum {
	EINTR = 4,
	SIGINT = 2, SIGKILL = 9, SIGALRM = 14, SIGTERM = 15, SIGCHLD = 17,
	SIG_BLOCK = 0, SIG_UNBLOCK = 1,
	WNOHANG = 1,
	AT_FDCWD = -100,
	O_RDONLY = 0, O_WRONLY = 01, O_CREAT = 0100, O_TRUNC = 01000, O_APPEND = 02000,
	O_NONBLOCK = 04000, O_CLOEXEC = 02000000,
	AF_INET = 2, AF_INET6 = 10, SOCK_STREAM = 1,
	SOL_SOCKET = 1, SO_REUSEADDR = 2, IPPROTO_IPV6 = 41, IPV6_V6ONLY = 26, SHUT_WR = 1,
	POLLIN = 1, PR_SET_PDEATHSIG = 1, ITIMER_REAL = 0,
	PROT_READ = 1, PROT_WRITE = 2, MAP_PRIVATE = 2, MAP_ANONYMOUS = 0x20,
};

typedef unsigned long sigset;
#define SIGBIT(n) (1UL << ((n) - 1))
#define SIGSET_BYTES 8L

struct timespec { long sec, nsec; };
struct pollfd { int fd; short events, revents; };

static inline long sys6(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall" : "=a"(ret)
		: "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		: "rcx", "r11", "memory");
	return ret;
#else
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0" : "+r"(x0)
		: "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
		: "memory");
	return x0;
#endif
}

#define SYS1(n, a)             sys6(NR_##n, (long)(a), 0, 0, 0, 0, 0)
#define SYS2(n, a, b)          sys6(NR_##n, (long)(a), (long)(b), 0, 0, 0, 0)
#define SYS3(n, a, b, c)       sys6(NR_##n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS4(n, a, b, c, d)    sys6(NR_##n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define SYS5(n, a, b, c, d, e) sys6(NR_##n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

static inline __attribute__((noreturn)) void quit(int code)
{
	for (;;)
		SYS1(exit_group, code);
}

/* The kernel enters a program with the stack pointer at argc; program() gets that address. */
#if defined(__x86_64__)
#define ENTRY __asm__(".text\n.global _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n" \
	"\tand $-16, %rsp\n\tcall program\n\thlt\n");
#else
#define ENTRY __asm__(".text\n.global _start\n_start:\n\tmov x29, #0\n\tmov x30, #0\n\tmov x0, sp\n" \
	"\tbl program\n\tbrk #0\n");
#endif

/* Blocked signals are queued even for PID 1 of a PID namespace, where unblocked ones without a
 * handler are thrown away; so signals are blocked and waited for, and there are no handlers. */
static inline void block(sigset set) { SYS4(rt_sigprocmask, SIG_BLOCK, &set, 0, SIGSET_BYTES); }

/* reap takes every ended child; orphans of a shared PID namespace become ours. Gives their number. */
static inline int reap(void)
{
	int n = 0;
	while (SYS4(wait4, -1, 0, WNOHANG, 0) > 0)
		n++;
	return n;
}

#endif
