/* A small HTTP/1.1 server: one process per connection, one request per connection. */
#include "lib.h"

enum {
	MOST_CHILDREN = 64,     /* further connections wait in the listen queue */
	REQUEST_BYTES = 4096,   /* request line and headers; more is answered with 431 */
	CONNECTION_SECONDS = 10 /* after which the kernel ends the child, whatever it waits for */
};

struct utsname { char sys[65], node[65], release[65], version[65], machine[65], domain[65]; };

static const char *reason(long code)
{
	switch (code) {
	case 200: return "OK";
	case 400: return "Bad Request";
	case 404: return "Not Found";
	case 405: return "Method Not Allowed";
	case 431: return "Request Header Fields Too Large";
	case 500: return "Internal Server Error";
	case 503: return "Service Unavailable";
	}
	return "Status";
}

/* ends says whether the n bytes end with an empty line. */
static int ends(const char *at, usize n)
{
	if (n < 2 || at[n - 1] != '\n')
		return 0;
	return at[n - 2] == '\n' || (n >= 4 && at[n - 2] == '\r' && at[n - 3] == '\n');
}

/* read_head reads to the empty line; gives the bytes read, 0 for a peer that went away, -1 for too many. */
static long read_head(int fd, char *at, usize cap)
{
	usize n = 0, seen = 0;

	while (n < cap) {
		long got = SYS3(read, fd, at + n, cap - n);
		if (got <= 0)
			return 0;
		n += got;
		while (seen < n)
			if (ends(at, ++seen))
				return seen;
	}
	return -1;
}

/* target cuts the request line apart in place; gives the status and, for 200, the path and whether it was HEAD. */
static long target(char *head, usize n, char **path, int *is_head)
{
	usize i = 0, start;

	while (i < n && head[i] >= 'A' && head[i] <= 'Z')
		i++;
	if (i == n || head[i] != ' ' || i == 0)
		return 400;
	head[i++] = 0;
	start = i;
	while (i < n && head[i] > ' ' && head[i] < 0x7f)
		i++;
	if (i == n || head[i] != ' ' || head[start] != '/')
		return 400;
	head[i++] = 0;
	if (n - i < 7 || head[i] != 'H' || head[i + 1] != 'T' || head[i + 2] != 'T' || head[i + 3] != 'P' ||
	    head[i + 4] != '/' || head[i + 5] != '1' || head[i + 6] != '.')
		return 400;
	*path = head + start;
	*is_head = same(head, "HEAD");
	if (!*is_head && !same(head, "GET"))
		return 405;
	return 200;
}

/* wished gives N for the path /status/N, so that a probe can be made to fail. */
static long wished(const char *path)
{
	const char *prefix = "/status/";
	while (*prefix)
		if (*prefix++ != *path++)
			return 200;
	long code = number(path, 599);
	return code < 200 ? 404 : code;
}

static void answer(int fd, long code, const char *path, int is_head)
{
	static char body_space[REQUEST_BYTES + 256], all_space[REQUEST_BYTES + 768];
	struct buf body = { body_space, 0, sizeof body_space };
	struct buf all = { all_space, 0, sizeof all_space };
	static struct utsname name;

	SYS1(uname, &name);
	if (code == 200) {
		put(&body, "Hello from ");
		put(&body, name.node);
		put(&body, ": ");
		put(&body, path);
	} else {
		put(&body, reason(code));
	}
	put(&body, "\n");
	put(&all, "HTTP/1.1 ");
	putnum(&all, code);
	put(&all, " ");
	put(&all, reason(code));
	put(&all, "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: ");
	putnum(&all, body.len);
	put(&all, "\r\n\r\n");
	if (!is_head)
		putn(&all, body.at, body.len);
	write_all(fd, all.at, all.len);
}

static void converse(int fd)
{
	static char head[REQUEST_BYTES];
	char *path = "-";
	int is_head = 0;
	long code = 431, n = read_head(fd, head, sizeof head);

	if (n == 0)
		return;
	if (n > 0)
		code = target(head, n, &path, &is_head);
	if (code == 200)
		code = wished(path);
	say(1, same(path, "-") ? "bad request" : head, " ", path);
	answer(fd, code, path, is_head);
	/* Closing with unread bytes would reset the connection and lose the answer: read to the end first. */
	SYS2(shutdown, fd, SHUT_WR);
	while (SYS3(read, fd, head, sizeof head) > 0)
		;
}

static void child(int fd, int listener, int signals, sigset blocked)
{
	long timer[4] = { 0, 0, CONNECTION_SECONDS, 0 };

	SYS2(prctl, PR_SET_PDEATHSIG, SIGKILL);
	SYS4(rt_sigprocmask, SIG_UNBLOCK, &blocked, 0, SIGSET_BYTES);
	SYS3(setitimer, ITIMER_REAL, timer, 0);
	SYS1(close, listener);
	SYS1(close, signals);
	converse(fd);
	quit(0);
}

/* listen_on takes both families, or IPv4 alone where the host has no IPv6. */
static long listen_on(long port)
{
	unsigned char addr[28] = { 0 };
	int one = 1, zero = 0, family = AF_INET6, size = 28;
	long fd = SYS3(socket, AF_INET6, SOCK_STREAM | O_CLOEXEC, 0);

	if (fd < 0) {
		family = AF_INET, size = 16;
		fd = SYS3(socket, AF_INET, SOCK_STREAM | O_CLOEXEC, 0);
	}
	if (fd < 0)
		return fd;
	addr[0] = family;
	addr[2] = port >> 8;
	addr[3] = port & 0xff;
	SYS5(setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (family == AF_INET6)
		SYS5(setsockopt, fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
	long err = SYS3(bind, fd, addr, size);
	if (err == 0)
		err = SYS2(listen, fd, 128);
	if (err < 0) {
		SYS1(close, fd);
		return err;
	}
	return fd;
}

/* drain empties the signal descriptor; gives 1 when one of them asked to end. */
static int drain(int signals)
{
	unsigned info[32]; /* struct signalfd_siginfo is 128 bytes, the signal number first */
	int stop = 0;

	while (SYS3(read, signals, info, sizeof info) == sizeof info)
		if (info[0] == SIGTERM || info[0] == SIGINT)
			stop = 1;
	return stop;
}

int serve(long port, sigset blocked)
{
	int children = 0;

	long signals = SYS4(signalfd4, -1, &blocked, SIGSET_BYTES, O_NONBLOCK | O_CLOEXEC);
	long listener = listen_on(port);
	if (signals < 0 || listener < 0) {
		say(2, "hello: cannot listen", "", "");
		return 1;
	}
	say(1, "listening", "", "");
	for (;;) {
		struct pollfd wait[2] = { { signals, POLLIN, 0 }, { listener, POLLIN, 0 } };
		if (SYS5(ppoll, wait, children < MOST_CHILDREN ? 2 : 1, 0, 0, 0) <= 0)
			continue;
		if (wait[0].revents) {
			if (drain(signals))
				return 0;
			children -= reap();
			if (children < 0) /* orphans of a shared PID namespace are reaped too */
				children = 0;
		}
		if (!(wait[1].revents & POLLIN) || children >= MOST_CHILDREN)
			continue;
		long fd = SYS4(accept4, listener, 0, 0, O_CLOEXEC);
		if (fd < 0)
			continue;
		long pid = SYS5(clone, SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			child(fd, listener, signals, blocked);
		if (pid > 0)
			children++;
		SYS1(close, fd);
	}
}
