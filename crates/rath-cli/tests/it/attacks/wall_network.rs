//! Commands that reach the network, or services of this machine, while the network is off.

use super::walls::Effect::{LineSaysSo, ServerIsReached};
use super::walls::wall;
use super::{Attack, Users};

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        wall("a connection to a port of this machine", ServerIsReached, "bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$PORT"),
        wall("a connection over IPv6", ServerIsReached,
            "perl -MSocket -e 'socket(S, AF_INET6, SOCK_STREAM, 0); \
             connect(S, Socket::pack_sockaddr_in6($ENV{PORT6}, Socket::inet_pton(AF_INET6, $ENV{HOST6}))) or die $!'"),
        wall("a connection to the address of all interfaces", ServerIsReached, "bash -c 'exec 3<>/dev/tcp/0.0.0.0/'$PORT"),
        wall("a connection to another loopback address", ServerIsReached,
            "bash -c 'exec 3<>/dev/tcp/127.0.0.2/'$PORT || bash -c 'exec 3<>/dev/tcp/127.1/'$PORT"),
        wall("a connection by the name of this machine", ServerIsReached, "bash -c 'exec 3<>/dev/tcp/localhost/'$PORT"),
        wall("a connection that opens with its first data", ServerIsReached,
            "perl -MSocket -e 'socket(S, AF_INET, SOCK_STREAM, 0); send(S, \"x\", 0x20000000, sockaddr_in($ENV{PORT}, inet_aton(\"127.0.0.1\"))) or die'"),
        wall("a datagram over UDP", ServerIsReached, "bash -c 'echo x > /dev/udp/127.0.0.1/'$UDP"),
        wall("a request of curl without its proxy", ServerIsReached,
            "NO_PROXY='*' curl -s -m 2 http://127.0.0.1:$PORT/ || bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$PORT"),
        wall("a Unix socket by its absolute path", ServerIsReached, "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, sockaddr_un(\"$ENV{SOCKETS}/socket\")) or die'"),
        wall("a Unix socket by a relative path", ServerIsReached,
            "cd \"$SOCKETS\" && perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, sockaddr_un(\"socket\")) or die'"),
        wall("a Unix socket with a space in its path", ServerIsReached,
            "cd \"$SOCKETS\"; perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, sockaddr_un(\"$ENV{SOCKETS}/a b\")) or die'"),
        wall("a Unix socket in the project", ServerIsReached,
            "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, sockaddr_un(\"inside.sock\")) or die'"),
        wall("a Unix socket in a directory that is shown", ServerIsReached,
            "cd \"$OUT\" && perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, sockaddr_un(\"o.sock\")) or die'"),
        wall("a Unix socket by a link of the project", ServerIsReached,
            "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, sockaddr_un(\"to-outside/o.sock\")) or die'"),
        wall("an abstract Unix socket", ServerIsReached,
            "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, pack(\"Sa*\", AF_UNIX, \"\\0$ENV{ABSTRACT}\")) or die'"),
        wall("a Unix socket opened without waiting", ServerIsReached,
            "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM | 0x800, 0) or die; connect(S, sockaddr_un(\"inside.sock\")) or die'"),
        wall("datagrams to a Unix socket of the project", ServerIsReached,
            "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_DGRAM, 0) or die; send(S, \"x\", 0, sockaddr_un(\"datagrams\")) or die'"),
        wall("one half of a pair connected to a socket", ServerIsReached,
            "perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) or die; connect(A, sockaddr_un(\"datagrams\")) or die; send(A, \"x\", 0) or die'"),
        wall("one half of a raw pair connected to a socket", ServerIsReached,
            "perl -MSocket -e 'socketpair(A, B, AF_UNIX, 3, 0) or die; send(A, \"x\", 0, sockaddr_un(\"datagrams\")) or die'"),
        wall("one half of a pair with more flags", ServerIsReached,
            "perl -MSocket -e 'socketpair(A, B, AF_UNIX, SOCK_DGRAM | 0x80800, 0) or die; send(A, \"x\", 0, sockaddr_un(\"datagrams\")) or die'"),
        wall("a Unix socket with more bits in its family", ServerIsReached,
            "perl -MSocket -e '$f = syscall(41, 0x100000001, 1, 0); $f >= 0 or die; open(S, \"+<&=\", $f) or die; connect(S, sockaddr_un(\"inside.sock\")) or die'"),
        wall("interfaces of the machine", LineSaysSo, "grep -Eq '(eth|en|wl|docker|br)[a-z0-9-]*:' /proc/net/dev && echo HARM; \
             [ \"$(ls /sys/class/net | grep -v '^lo$' | wc -l)\" -gt 0 ] && grep -qv -e lo: -e '|' /proc/net/dev && echo HARM; \
             grep -q ' [0-9A-F]*:[0-9A-F]* 00000000:0000 0A ' /proc/net/tcp && echo HARM"),
        wall("the list of Unix sockets of the machine", LineSaysSo, "[ \"$(wc -l < /proc/net/unix)\" -gt 1 ] && echo HARM; grep -q ' 0A ' /proc/net/tcp && echo HARM"),
        wall("the hypervisor", LineSaysSo, "perl -e '$! = 0; syscall(41, 40, 1, 0); print $! == 1 ? \"refused\" : \"HARM\"'"),
        wall("the ciphers of the kernel", LineSaysSo, "perl -e '$! = 0; syscall(41, 38, 5, 0); print $! == 1 ? \"refused\" : \"HARM\"'"),
        wall("packets on the wire", LineSaysSo, "perl -e 'syscall(41, 17, 3, 768) >= 0 and print \"HARM\"'")
            .by(Users::RootOnly("only root may read packets")),
        wall("raw packets", LineSaysSo, "perl -e 'syscall(41, 2, 3, 1) >= 0 and print \"HARM\"'")
            .by(Users::RootOnly("only root may send them")),
        wall("an interface of the network configured", LineSaysSo,
            "perl -MSocket -e 'socket(S, AF_INET, SOCK_DGRAM, 0); $r = pack(\"a16 s\", \"lo\", 0); ioctl(S, 0x8913, $r) or die $!; ioctl(S, 0x8914, $r) or die $!; print \"HARM\"'")
            .by(Users::RootOnly("interfaces belong to root")),
    ]
}
