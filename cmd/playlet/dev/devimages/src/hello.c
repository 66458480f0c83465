/* hello is an HTTP server that greets, and a box of small behaviours for tests, chosen by its arguments.
 *
 *   hello [serve] [PORT]      greet on PORT, else $PORT, else 8080; /status/N answers with N; TERM ends it with 0
 *   hello exit N [SECONDS]    end with N, after SECONDS if given
 *   hello sleep [SECONDS]     wait (for ever); TERM ends it with 0
 *   hello ignore-term         say "ignored TERM" to each TERM or INT; only KILL ends it
 *   hello slow-term N SECONDS on TERM say so, wait SECONDS, end with N
 *   hello write FILE TEXT     write TEXT and a newline;  append FILE TEXT  adds them at the end
 *   hello cat FILE            print FILE
 *   hello check-file FILE     end with 0 if FILE is there, else 1
 *   hello wait-file FILE      go on once FILE is there
 *   hello env [NAME]          print the environment, or one value (1 when unset)
 *   hello args [ARG...]       print each argument on a line
 *   hello pwd                 print the working directory
 *   hello id                  print uid, gid and groups
 *   hello alloc MEBIBYTES     take and touch memory, then go on
 *
 * Commands are chained with "--": the next one runs after one that ended with 0.
 */
#include "lib.h"

ENTRY

enum { USAGE = 2 };

static const sigset handled = SIGBIT(SIGTERM) | SIGBIT(SIGINT) | SIGBIT(SIGCHLD);

/* await sleeps for some time, or for ever when seconds is negative; gives 1 when TERM or INT came. */
static int await(long seconds, long nanoseconds)
{
	struct timespec left = { seconds, nanoseconds };

	for (;;) {
		long sig = SYS4(rt_sigtimedwait, &handled, 0, seconds < 0 ? 0 : &left, SIGSET_BYTES);
		if (sig == SIGTERM || sig == SIGINT)
			return 1;
		if (sig == SIGCHLD)
			reap();
		else if (sig != -EINTR && seconds >= 0)
			return 0;
	}
}

static int copy_file(const char *name)
{
	static char piece[4096];
	long fd = SYS4(openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0), n;

	if (fd < 0) {
		say(2, "hello: cannot open ", name, "");
		return 1;
	}
	while ((n = SYS3(read, fd, piece, sizeof piece)) > 0)
		if (write_all(1, piece, n))
			return 1;
	SYS1(close, fd);
	return n < 0;
}

static int put_file(const char *name, const char *text, int how)
{
	long fd = SYS4(openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_CLOEXEC | how, 0644);

	if (fd < 0) {
		say(2, "hello: cannot write ", name, "");
		return 1;
	}
	int bad = write_all(fd, text, slen(text)) || write_all(fd, "\n", 1);
	return SYS1(close, fd) < 0 || bad;
}

static int print_env(char **env, const char *name)
{
	if (name) {
		const char *value = getenv_in(env, name);
		if (value)
			say(1, value, "", "");
		return !value;
	}
	for (; *env; env++)
		say(1, *env, "", "");
	return 0;
}

static int print_id(void)
{
	static char space[512];
	static unsigned groups[32];
	struct buf line = { space, 0, sizeof space };
	long n = SYS2(getgroups, 32, groups), i;

	put(&line, "uid=");
	putnum(&line, SYS1(getuid, 0));
	put(&line, " gid=");
	putnum(&line, SYS1(getgid, 0));
	put(&line, " groups=");
	for (i = 0; i < n; i++) {
		put(&line, i ? "," : "");
		putnum(&line, groups[i]);
	}
	put(&line, "\n");
	return write_all(1, line.at, line.len);
}

static int alloc(long mebibytes)
{
	usize size = (usize)mebibytes << 20, i;
	long at = sys6(NR_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at < 0 && at > -4096)
		return 1;
	for (i = 0; i < size; i += 4096)
		((volatile char *)at)[i] = 1;
	return 0;
}

static int slow_term(long code, long wait)
{
	struct timespec left = { wait, 0 };

	if (code < 0 || wait < 0)
		return USAGE;
	await(-1, 0);
	say(1, "got TERM", "", "");
	sigset none = 0;
	while (SYS4(rt_sigtimedwait, &none, 0, &left, SIGSET_BYTES) == -EINTR)
		;
	return code;
}

static int wait_file(const char *name)
{
	while (SYS4(faccessat, AT_FDCWD, name, 0, 0) < 0)
		if (await(0, 20 * 1000 * 1000))
			return 1;
	return 0;
}

/* seconds gives def when there is no such argument, -1 for a wrong one. */
static long seconds(int argc, char **argv, int at, long def)
{
	return argc > at ? number(argv[at], 1 << 30) : def;
}

static int run_exit(int argc, char **argv)
{
	long code = number(argv[1], 255), wait = seconds(argc, argv, 2, 0);
	if (code < 0 || wait < 0)
		return USAGE;
	if (wait > 0 && await(wait, 0))
		return 0;
	return code;
}

static int run_serve(int argc, char **argv, char **env)
{
	const char *port = argc > 0 ? argv[0] : getenv_in(env, "PORT");
	long n = number(port ? port : "8080", 65535);

	if (n <= 0) {
		say(2, "hello: bad port ", port, "");
		return USAGE;
	}
	return serve(n, handled);
}

static int with_file(int argc, char **argv)
{
	const char *cmd = argv[0];

	if (argc == 3 && same(cmd, "write"))
		return put_file(argv[1], argv[2], O_TRUNC);
	if (argc == 3 && same(cmd, "append"))
		return put_file(argv[1], argv[2], O_APPEND);
	if (argc != 2)
		return USAGE;
	if (same(cmd, "cat"))
		return copy_file(argv[1]);
	if (same(cmd, "check-file"))
		return SYS4(faccessat, AT_FDCWD, argv[1], 0, 0) < 0;
	if (same(cmd, "wait-file"))
		return wait_file(argv[1]);
	return USAGE;
}

static int run(int argc, char **argv, char **env)
{
	static char cwd[4096];
	const char *cmd = argc > 0 ? argv[0] : "serve";

	if (argc == 0 || number(cmd, 65535) >= 0)
		return run_serve(argc, argv, env);
	if (same(cmd, "serve"))
		return run_serve(argc - 1, argv + 1, env);
	if (same(cmd, "exit") && argc > 1)
		return run_exit(argc, argv);
	if (same(cmd, "sleep") && seconds(argc, argv, 1, 0) >= 0)
		return await(argc > 1 ? seconds(argc, argv, 1, 0) : -1, 0), 0;
	if (same(cmd, "slow-term") && argc == 3)
		return slow_term(number(argv[1], 255), seconds(argc, argv, 2, 0));
	if (same(cmd, "ignore-term"))
		while (await(-1, 0))
			say(1, "ignored TERM", "", "");
	if (same(cmd, "env"))
		return print_env(env, argc > 1 ? argv[1] : 0);
	if (same(cmd, "pwd") && SYS2(getcwd, cwd, sizeof cwd) > 0)
		return say(1, cwd, "", ""), 0;
	if (same(cmd, "id"))
		return print_id();
	if (same(cmd, "alloc") && argc == 2 && number(argv[1], 1 << 20) >= 0)
		return alloc(number(argv[1], 1 << 20));
	if (same(cmd, "args")) {
		for (int i = 1; i < argc; i++)
			say(1, argv[i], "", "");
		return 0;
	}
	return with_file(argc, argv);
}

__attribute__((noreturn, used)) void program(long *stack)
{
	int argc = stack[0] - 1, n, code;
	char **argv = (char **)(stack + 2), **env = (char **)(stack + 2 + argc + 1);

	if (argc < 0) /* started with no name at all: argv is empty */
		argc = 0, argv = (char **)(stack + 1), env = (char **)(stack + 2);
	block(handled); /* from the first moment on, so that none is lost before a command waits for it */
	for (;;) {
		for (n = 0; n < argc && !same(argv[n], "--"); n++)
			;
		code = run(n, argv, env);
		if (code == USAGE)
			say(2, "hello: bad command ", n ? argv[0] : "", "");
		if (code || n >= argc)
			quit(code);
		argv += n + 1;
		argc -= n + 1;
	}
}
