# A server that misbehaves on request, with nothing but perl. Arguments: how it starts, and a mark for processes that it leaves.
use strict;
use warnings;
$| = 1;
my ($mode, $mark) = (@ARGV, '', '');
my ($more, $cancelled, $pending) = (0, 0, '');
my $ttl = $mode eq 'ttl' ? 60_000 : 0;
my $pages = 0;
my $long = 'notes://' . 'n' x 600;

sub say_json { print $_[0], "\n" }
sub result { my ($id, $json) = @_; say_json(qq({"jsonrpc":"2.0","id":$id,"result":$json})) }
sub text { my ($id, $text) = @_; result($id, qq({"content":[{"type":"text","text":"$text"}]})) }
sub touch { open my $file, '>>', $_[0] or die; print $file "x" }
sub tool { my ($name, $more) = @_; return qq({"name":"$name","description":"Does $name.","inputSchema":{"type":"object"}$more}) }

if ($mode eq 'never') { while (<STDIN>) { } exit }
if ($mode eq 'dies') { print STDERR "no database\n"; exit 3 }
if ($mode eq 'noise') { print "a log line on the wrong stream\n" for 1 .. 10 }

my @names = $mode eq 'collide'
    ? ('a.b', 'a/b', 'a_b')
    : qw(echo image value fail progress slow die flood garbage invalid big change ask env pid cancelled leave spill refuse values pings deaf);

while (my $line = <STDIN>) {
    my ($id) = $line =~ /"id":("[^"]*"|\d+)/;
    my ($method) = $line =~ /"method":"([^"]*)"/;
    next unless defined $method;
    if ($method eq 'notifications/cancelled') { $cancelled++; next }
    if ($method eq 'notifications/initialized' && $mode eq 'waits') { touch('ready') }
    next unless defined $id;
    if ($method eq 'server/discover' && $mode eq 'modern') {
        result($id, '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
            . '"serverInfo":{"name":"test","version":"1"},"ttlMs":0,"cacheScope":"private"}');
    } elsif ($method eq 'server/discover' && $mode eq 'strict') {
        exit 1;
    } elsif ($method eq 'initialize') {
        if ($mode eq 'waits') { touch('asked'); until (-e 'go') { select undef, undef, undef, 0.005 } }
        my $resources = $mode =~ /^(resources|fullpages)$/ ? ',"resources":{}' : '';
        my $version = $mode eq 'liar' ? '1999-01-01' : '2025-11-25';
        result($id, '{"protocolVersion":"' . $version . '","capabilities":{"tools":{"listChanged":true}' . $resources . '},'
            . '"serverInfo":{"name":"test","version":"1"}}');
    } elsif ($mode eq 'fullpages' && $method =~ /^(resources|prompts)\/list$/) {
        $pages++;
        my $about = 'x' x 400_000;
        my $item = $1 eq 'resources' ? qq("uri":"notes:$pages",) : '';
        result($id, qq({"$1":[{$item"name":"n$pages","description":"$about"}],"nextCursor":"c$pages"}));
    } elsif ($method eq 'tools/list' && $mode eq 'quits') {
        exit 9;
    } elsif ($method eq 'resources/list') {
        result($id, qq({"resources":[{"uri":"$long","name":"long"},{"uri":"notes://correct-horse","name":"secret"}]}));
    } elsif ($method eq 'resources/read') {
        my ($uri) = $line =~ /"uri":"([^"]*)"/;
        result($id, qq({"contents":[{"uri":"notes","text":") . ($uri eq $long ? 'found' : 'unknown') . '"}]}');
    } elsif ($method eq 'tools/list' && $mode eq 'mutechange' && $more == 1) {
        touch('asked');
    } elsif ($method eq 'tools/list' && $mode =~ /^(mute|bad)list$/ && !$more) {
        touch('asked');
        if (-e 'change') { $more++; say_json('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}') }
        result($id, '{"tools":[{"name":5}]}') if $mode eq 'badlist';
    } elsif ($method eq 'tools/list') {
        my @tools = map { tool($_, $_ eq 'echo' ? ',"annotations":{"readOnlyHint":true}' : '') } @names;
        push @tools, tool("new$_", '') for 1 .. $more;
        result($id, '{"tools":[' . join(',', @tools) . '],"resultType":"complete","ttlMs":' . $ttl . ',"cacheScope":"private"}');
    } elsif ($method eq 'tools/call') {
        # The client names itself in each request of the newer protocol.
        $line =~ s/"[^"]*clientInfo":\{[^}]*\}//g;
        my ($name) = $line =~ /"name":"([^"]*)"/;
        my ($token) = $line =~ /"progressToken":("[^"]*"|\d+)/;
        if ($name eq 'echo' || $mode eq 'collide') { my ($said) = $line =~ /"text":"([^"]*)"/; text($id, $said // $name) }
        elsif ($name eq 'image') { result($id, '{"content":[{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}]}') }
        elsif ($name eq 'value') { result($id, '{"content":[],"structuredContent":{"sum":3}}') }
        elsif ($name eq 'fail') { result($id, '{"content":[{"type":"text","text":"no such row"},{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}],"isError":true}') }
        elsif ($name eq 'progress') {
            for my $done (1 .. 3) {
                say_json(qq({"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$token,)
                    . qq("progress":$done,"total":3,"message":"part $done"}}));
            }
            text($id, 'done');
        }
        elsif ($name eq 'slow') { open my $begun, '>', 'begun' or die }
        elsif ($name eq 'die') { print STDERR "out of ideas\n"; exit 7 }
        elsif ($name eq 'flood') { print STDERR 'x' x 99, "\n" for 1 .. 100_000; text($id, 'flooded') }
        elsif ($name eq 'garbage') { print "{\"jsonrpc\": \x{22}2.0\x{22}, oops\n" }
        elsif ($name eq 'invalid') { print qq({"jsonrpc":"2.0","id":$id,"result":7,"error":8}\n) }
        elsif ($name eq 'big') { print 'x' x 1_000_000 for 1 .. 100; print "\n" }
        elsif ($name eq 'change') {
            $more++;
            say_json('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
            text($id, 'changed');
        }
        elsif ($name eq 'ask') {
            say_json('{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}');
            my $reply = <STDIN>;
            text($id, $reply =~ /-32601/ ? 'refused' : 'allowed');
        }
        elsif ($name eq 'env') { text($id, join(' ', map { "$_=$ENV{$_}" } grep { /^(SECRET|GIVEN)/ } sort keys %ENV)) }
        elsif ($name eq 'spill') { print STDERR $ENV{SECRET_KEY}, 'y' x 1990; exit 7 }
        elsif ($name eq 'refuse') {
            my $message = 'x' x 1990 . $ENV{SECRET_KEY};
            say_json(qq({"jsonrpc":"2.0","id":$id,"error":{"code":-32000,"message":"$message"}}));
        }
        elsif ($name eq 'values') { result($id, '{"content":[],"structuredContent":{"v":[' . '0,' x 2_000_000 . '0]}}') }
        elsif ($name eq 'pings') {
            say_json(qq({"jsonrpc":"2.0","id":"p$_","method":"ping"})) for 1 .. 40_000;
            text($id, 'answered');
        }
        elsif ($name eq 'deaf') { sleep 1000 while 1 }
        elsif ($name eq 'pid') { text($id, $$) }
        elsif ($name eq 'cancelled') { text($id, $cancelled) }
        elsif ($name eq 'leave') {
            unless (fork) { unless (fork) { close STDOUT; close STDIN; exec 'setsid', 'sleep', $mark } exit }
            text($id, 'left');
        }
        else { text($id, "called $name") }
    } else {
        say_json(qq({"jsonrpc":"2.0","id":$id,"error":{"code":-32601,"message":"unknown method"}}));
    }
}
