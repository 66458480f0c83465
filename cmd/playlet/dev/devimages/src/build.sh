#!/bin/sh
# build.sh OUT ARCH...: compiles pause and hello for amd64 or arm64 into OUT/<program>-<arch>.
# $CC_amd64 and $CC_arm64 name other compilers.
set -eu
src=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
flags="-Os -std=gnu11 -Wall -Wextra -Werror -static -nostdlib -ffreestanding -fno-pie -no-pie
 -fno-stack-protector -fno-asynchronous-unwind-tables -fno-tree-loop-distribute-patterns -ffunction-sections -Wl,--gc-sections
 -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,norelro -Wl,-z,noexecstack -s"
for arch in "$@"; do
	case $arch in
	amd64) cc=${CC_amd64:-$([ "$(uname -m)" = x86_64 ] && echo gcc || echo x86_64-linux-gnu-gcc)} ;;
	arm64) cc=${CC_arm64:-$([ "$(uname -m)" = aarch64 ] && echo gcc || echo aarch64-linux-gnu-gcc)} ;;
	*) echo "build.sh: unknown architecture $arch" >&2; exit 1 ;;
	esac
	# shellcheck disable=SC2086 # the flags are several words
	$cc $flags -o "$out/pause-$arch" "$src/pause.c"
	# shellcheck disable=SC2086
	$cc $flags -o "$out/hello-$arch" "$src/hello.c" "$src/http.c" "$src/lib.c"
done
