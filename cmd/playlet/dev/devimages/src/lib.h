/* The few string and output helpers of hello. */
#ifndef LIB_H
#define LIB_H

#include "sys.h"

typedef unsigned long usize;

/* A bounded buffer: what does not fit is cut off, never written past the end. */
struct buf {
	char *at;
	usize len, cap;
};

usize slen(const char *s);
int same(const char *a, const char *b);
/* number reads a decimal; -1 for anything else, or for more than max. */
long number(const char *s, long max);
const char *getenv_in(char **env, const char *name);

void put(struct buf *b, const char *s);
void putn(struct buf *b, const char *s, usize n);
void putnum(struct buf *b, unsigned long n);
/* write_all gives 0, or -1 when the descriptor does not take all of it. */
int write_all(int fd, const char *s, usize n);
void say(int fd, const char *a, const char *b, const char *c);

/* serve answers HTTP until TERM or INT (0), or fails to listen (1). blocked holds these two and CHLD, all blocked. */
int serve(long port, sigset blocked);

#endif
