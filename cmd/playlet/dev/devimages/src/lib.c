#include "lib.h"

/* The compiler may ask for these two wherever a variable is cleared or copied. */
void *memset(void *to, int byte, usize n)
{
	for (char *p = to; n--; p++)
		*p = byte;
	return to;
}

void *memcpy(void *to, const void *from, usize n)
{
	char *p = to;
	const char *q = from;
	while (n--)
		*p++ = *q++;
	return to;
}

usize slen(const char *s)
{
	usize n = 0;
	while (s[n])
		n++;
	return n;
}

int same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

long number(const char *s, long max)
{
	long n = 0;
	if (!*s)
		return -1;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return -1;
		n = n * 10 + (*s - '0');
		if (n > max)
			return -1;
	}
	return n;
}

const char *getenv_in(char **env, const char *name)
{
	usize n = slen(name), i;
	for (; *env; env++) {
		for (i = 0; i < n && (*env)[i] == name[i]; i++)
			;
		if (i == n && (*env)[n] == '=')
			return *env + n + 1;
	}
	return 0;
}

void putn(struct buf *b, const char *s, usize n)
{
	while (n-- && b->len < b->cap)
		b->at[b->len++] = *s++;
}

void put(struct buf *b, const char *s) { putn(b, s, slen(s)); }

void putnum(struct buf *b, unsigned long n)
{
	char digits[24];
	usize i = sizeof digits;
	do
		digits[--i] = '0' + n % 10;
	while (n /= 10);
	putn(b, digits + i, sizeof digits - i);
}

int write_all(int fd, const char *s, usize n)
{
	while (n) {
		long got = SYS3(write, fd, s, n);
		if (got == -EINTR)
			continue;
		if (got <= 0)
			return -1;
		s += got;
		n -= got;
	}
	return 0;
}

/* One write per line, so that lines of several processes do not mix. */
void say(int fd, const char *a, const char *b, const char *c)
{
	char space[1024];
	struct buf line = { space, 0, sizeof space - 1 };
	put(&line, a);
	put(&line, b);
	put(&line, c);
	line.cap++;
	put(&line, "\n");
	write_all(fd, space, line.len);
}
