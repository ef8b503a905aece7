"""Checks rath session files. Follows docs/format.md, and is meant to be read next to it.

Needs Python 3.9 or later and the package blake3 (pip install blake3):

    python docs/verify.py FILE...

Prints a line for each problem, with its place, and a summary for each file. Exit codes: 0 if every file is whole, 3 if
one is damaged or cut, otherwise 1 if one cannot be read, is no session file or has a newer version, 2 for wrong use.
"""
import argparse
import base64
import hashlib
import json
import re
import sys
import zlib
from itertools import islice

try:
    from blake3 import blake3
except ImportError:
    sys.exit("the package blake3 is needed: pip install blake3")

MAX_ROW = 2**30  # with its line break
MAX_BYTES = {b"blob": 2**30, b"tree": 2**26}  # of the content of an object
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
MAX_PLACES = 64  # to look at in a damaged line; without a limit, a hostile file could take for ever

PARTS = {
    "SEAL": "[0-9a-f]{32}",
    "HASH": "[0-9a-f]{64}",
    "OBJECT": "[0-9a-f]{40}",
    "UUID": "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "USAGE": r"\{%s\}" % "".join(
        rf'(?:"{name}":(?!0)NUMBER(?:,(?=")|(?=\}})))?'
        for name in ["input", "output", "cached_read", "cache_write", "reasoning"]),
    # Nineteen digits hold every number below 2^63, and keep int() away from endless ones. Last, because USAGE has it too.
    "NUMBER": "(?:0|[1-9][0-9]{0,18})(?![0-9])",
}
# `by` is matched up to the first quote that one of the next members follows. Should that quote be an escaped one, then
# the row is laid out wrong, and what was matched is no JSON string: read_row looks at that.
LAYOUT = r"""
\{"seal":"(?P<seal>SEAL)",
(?: "format":"rath\ record","version":(?: (?P<version>[123])\} | (?P<later>(?![0123](?![0-9]))NUMBER).* )
  | "prev":"(?P<prev>SEAL)","n":(?P<n>(?!0)NUMBER),(?P<after_sync>"after_sync":true,)?
    (?: "id":"(?P<id>HASH)","parents":\[(?P<parents>(?:"HASH"(?:,"HASH")?)?)\],"branch":"UUID"
        (?:,"by":(?P<by>".*?"))? (?:,"usage":(?P<usage>USAGE))? (?:,"at":(?P<at>(?!-0)-?NUMBER))?
        (?:,"withheld":"(?P<withheld>HASH)")? (?:,"signed":"[A-Za-z0-9+/]{20}")? ,"chunk":(?P<chunk>.*)\}
      | "payload":"(?P<payload>HASH)",(?: "text":(?P<text>".*") | "base64":"(?P<base64>[^"]*)" )\}
      | "gone":"(?P<gone>HASH)"(?:,"in":"UUID")?\}
      | "object":"(?P<object>OBJECT)",
        (?: "(?P<kind>blob|tree)":(?P<size>NUMBER),"zlib":"(?P<zlib>[^"]*)" | (?P<missing>"missing":true)
          | "forgotten":(?P<forgotten>NUMBER),"digest":"HASH" )\}
      | "open":(?P<open>(?!0)NUMBER)(?:,"cut":(?P<cut>(?!0)NUMBER))?,"by":(?P<writer>".*")\}
      | "end":(?P<end>NUMBER)\}
    )
)"""
for part, pattern in PARTS.items():
    LAYOUT = LAYOUT.replace(part, pattern)
ROW = re.compile(LAYOUT.encode(), re.DOTALL | re.VERBOSE)
ROW_START = re.compile(rb'\{"seal":"')
KIND = re.compile(rb'\{"kind":"([^"\\]+)"')
ENTRY = re.compile(rb"(100644|100664|100755|120000|40000) ([^/\0]+)\0(.{20})", re.DOTALL)

# The texts and blobs in chunks, by kind: there, and only there, payloads are referred to. * is each item of a list.
TEXTS = """
    instructions.text user.text user.images.*.blob assistant.text assistant.reasoning assistant.calls.*.arguments
    tool_result.output tool_result.whole tool_result.images.*.blob memory.event.remember.text memory.event.recall.query memory.event.recall.found.*.text
    compressed.summary selected.reply checked.output retry.error interrupted.reason denied.reason failed.message
    note.text
""".split()


class CannotCheck(Exception):
    """The file is no session file, or has a newer version."""


def read_lines(file):
    """Each line, with its line break if it has one."""
    limit = 2 * MAX_ROW  # room for two rows with something else than a line break between them
    while line := file.readline(limit):
        if len(line) == limit and not line.endswith(b"\n"):
            while (rest := file.readline(limit)) and not rest.endswith(b"\n"):
                pass
            # So long a line is always damaged, and keeping it could fill the memory.
            line = line[:9] + rest[-1:]
        yield line


def read_json(raw):
    def refuse(name):
        raise ValueError(f"{name} is not JSON")

    # No number is looked at, and int() refuses long ones.
    return json.loads(raw.decode("utf-8"), parse_constant=refuse, parse_int=float)


def seal_fits(raw):
    return blake3(raw[43:]).hexdigest()[:32].encode() == raw[9:41]


def read_row(raw):
    """The members of a good row by name, None for those it lacks; or None if it is not good."""
    match = len(raw) < MAX_ROW and raw.endswith(b"}") and seal_fits(raw) and ROW.fullmatch(raw)
    if not match:
        return None
    row = match.groupdict()
    numbers = [row["n"], row["later"], row["end"], row["open"], row["cut"], row["size"], row["forgotten"],
               *re.findall(rb"[0-9]+", row["usage"] or b"")]
    if any(int(number or 0) >= 2**63 for number in numbers) or not -2**63 <= int(row["at"] or 0) < 2**63:
        return None
    try:
        for name in filter(None, [row["by"], row["writer"]]):
            if json.dumps(read_json(name), ensure_ascii=False).encode("utf-8") != name:
                return None
        row["bytes"] = payload_bytes(row) if row["payload"] else from_base64(row["zlib"]) if row["kind"] else None
    except ValueError:
        return None
    return row


def payload_bytes(row):
    if row["text"]:
        return read_json(row["text"]).encode("utf-8")
    return from_base64(row["base64"])


def from_base64(text):
    data = base64.b64decode(text, validate=True)
    if base64.b64encode(data) != text:
        raise ValueError("bits are set that stand for nothing")
    return data


def rows_in_damaged_line(line):
    """The good row that a line begins with, or None, and the one that it ends with, or None."""
    places = [match.start() for match in islice(ROW_START.finditer(line, 1), MAX_PLACES)]
    for place in places + [len(line)]:
        if first := read_row(line[:place - 1]):
            places = [later for later in places if later >= place]
            break
    return first, next(filter(None, (read_row(line[place:]) for place in places)), None)


def step_id(parents, chunk_digest):
    raw_parents = b"".join(map(bytes.fromhex, parents))
    return blake3(b"rath step 1\n" + bytes([len(parents)]) + raw_parents + chunk_digest).hexdigest()


def payloads_of(kind, chunk):
    """The digests of the payloads that a chunk refers to."""
    for of_kind, *names in (path.split(".") for path in TEXTS):
        values = [chunk] if of_kind == kind else []
        for name in names:
            if name == "*":
                values = [item for value in values if isinstance(value, list) for item in value]
            else:
                values = [value[name] for value in values if isinstance(value, dict) and name in value]
        for value in values:
            digest = value.get("digest") if isinstance(value, dict) else None
            if isinstance(digest, str) and re.fullmatch(PARTS["HASH"], digest):
                yield digest


def objects_of(chunk):
    """The objects that a chunk names, each with its kind."""
    if re.fullmatch("git:" + PARTS["OBJECT"], tree if isinstance(tree := chunk.get("tree"), str) else ""):
        yield tree[4:], b"tree"
    conflicts = chunk.get("conflicts")
    for conflict in conflicts if isinstance(conflicts, list) else []:
        for side in ("base", "ours", "theirs"):
            version = conflict.get(side) if isinstance(conflict, dict) else None
            name = version.get("object") if isinstance(version, dict) else None
            if isinstance(name, str) and re.fullmatch(PARTS["OBJECT"], name):
                yield name, b"blob"


def object_content(kind, name, size, packed):
    """The content of an object, or None if it is not what its id stands for."""
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(packed, size + 1)
    except zlib.error:
        return None
    whole = len(content) == size and unpacker.eof and not unpacker.unused_data
    return content if whole and hashlib.sha1(b"%s %d\0%s" % (kind, size, content)).hexdigest() == name else None


def entries_of(tree):
    """The objects that a tree names, each with its kind; or None if it is not laid out as a tree."""
    entries, at, last = [], 0, b""
    while at < len(tree):
        match = ENTRY.match(tree, at)
        if not match or match[2].lower() in (b".", b"..", b".git", b".rath"):
            return None
        key = match[2] + (b"/" if match[1] == b"40000" else b"")
        if key <= last:
            return None
        entries.append((match[3].hex(), b"tree" if match[1] == b"40000" else b"blob"))
        at, last = match.end(), key
    return entries


class Report:
    """What is known about a file so far. Numbers in brackets are those of the rules under "Checking a file"."""

    def __init__(self):
        self.problems = []
        self.line = self.rows = self.step_rows = 0
        self.last, self.last_seal = -1, None  # number and seal of the last row
        self.damaged = 0  # lines since the last row
        self.broken = None  # how long the last of them is, and which problem it is
        self.steps, self.payloads = {}, {}  # by id and by digest, the smallest number of a row that has it, and its line
        self.references = []  # what steps refer to, to be looked up when every row is known
        self.end, self.cut = None, False
        self.version, self.unfinished = None, None  # [10]
        self.named, self.objects = {}, set()  # the kinds of the objects that are named, by id, and those that have a row
        self.has_files = False  # [12]

    def problem(self, what, row=None, step=None):
        place = f"line {self.line}"
        place += "" if row is None else f", row {row}"
        place += "" if step is None else f", step {step[:8]}"
        self.problems.append(f"{place}: {what}")

    def check_file(self, file):
        beginning, zeros = b"", True
        for self.line, line in enumerate(read_lines(file), 1):
            beginning = beginning or line[:9]
            zeros = zeros and not line.strip(b"\0")
            self.check_line(line)
        if zeros:
            self.line, self.problems = 1, []
            return self.problem("cut off at its beginning")
        if self.rows == 0 and not b'{"seal":"'.startswith(beginning):
            raise CannotCheck("is not a session file")
        cut_line = self.line + 1
        if self.unfinished:
            cut_line, problems, self.rows, self.step_rows = self.unfinished
            self.problems, self.end, self.cut, self.line = self.problems[:problems], None, True, cut_line
            self.problem("cut off: what follows was not durable when the writer stopped")
        last_line = self.line
        for self.line, number, step, what, name, rows in self.references:  # [6]
            found, line = rows.get(name, (number, 0))
            if self.line < cut_line and (found >= number or line >= cut_line):
                self.problem(f"its {what} {name[:8]} stands in no good row with a smaller number", number, step)
        self.line = last_line
        if self.has_files:  # [12]
            for name in sorted(set(self.named) - self.objects):
                self.problem(f"the object {name[:8]} is named and has no row")
        if self.end is None and not self.cut:  # [8]
            self.problem("the last line is not the end row")
        elif not self.problems and self.end != self.step_rows:
            self.problem(f"the end row counts {self.end} steps, but there are {self.step_rows}", self.last)

    def check_line(self, raw):
        line = raw[:-1] if raw.endswith(b"\n") else raw
        if row := read_row(line):
            return self.check_row(row)
        self.may_end_here()
        first, last = rows_in_damaged_line(line)  # [1]
        # After the end, another writer may have begun.
        begun = b'{"seal":"'.startswith(line[:9])
        self.cut = line is raw and not first and not last and (self.end is None or begun)
        if self.cut:
            self.end = None
            self.problem("cut off in the middle of a row")
        elif first and last:
            self.problem("damaged: what parts two rows is no line break")
        else:
            self.broken = (len(line), len(self.problems))
            self.problem("damaged: sealed, but not laid out as a row" if seal_fits(line) else "damaged")
        if first:
            self.check_row(first)
        self.damaged += 1
        if last:
            self.check_row(last)

    def may_end_here(self):
        """Remembers what is known before the first fault since the last mark."""
        if self.version == b"2" and not self.unfinished:
            self.unfinished = (self.line, len(self.problems), self.rows, self.step_rows)

    def check_row(self, row):
        number = int(row["n"] or 0)
        if row["later"] and self.rows == 0:
            raise CannotCheck(f"has the newer version {int(row['later'])}; this program knows versions 1 to 3")
        self.version = self.version or row["version"]
        self.has_files = self.has_files or row["version"] == b"3"
        mark = number > self.last and (row["after_sync"] or row["end"])
        if mark:
            self.unfinished = None
        if row["seal"] == self.last_seal:
            self.may_end_here()
            return self.problem("repeated", number)
        if row["open"]:
            self.reopen(int(row["cut"] or 0))
        self.check_order(number, row, mark)
        self.rows += 1
        if row["id"]:
            self.check_step(number, row["id"].decode(), row)
        elif row["payload"]:
            self.check_payload(number, row["payload"].decode(), row["bytes"])
        elif row["object"]:
            self.check_object(number, row["object"].decode(), row)
        elif row["gone"]:
            name = row["gone"].decode()
            for known in (self.steps, self.payloads):
                known[name] = min((number, self.line), known.get(name, (number, self.line)))
        elif row["end"]:
            self.end = int(row["end"])

    def reopen(self, cut):
        """Another writer continues: what was cut before is no damage."""
        self.end = None
        if cut and self.damaged and self.broken and self.broken[0] == cut:
            del self.problems[self.broken[1]]
            self.damaged -= 1
            self.broken = None

    def check_order(self, number, row, mark):
        gap = number - self.last - 1
        follows = 0 <= gap <= self.damaged and (gap > 0 or row["prev"] == self.last_seal) and self.end is None
        if not follows and not mark:
            self.may_end_here()
        if gap < 0:  # [2]
            return self.problem(f"out of order: stands after row {self.last}", number)
        if gap > self.damaged:
            which = f"row {number - 1} is" if gap == 1 else f"rows {self.last + 1} to {number - 1} are"
            self.problem(f"{which} missing{' or damaged' if self.damaged else ''} before it", number)
        elif gap == 0 and row["prev"] != self.last_seal:  # [3]
            self.problem(f"does not follow row {self.last}: one of the two was replaced or sealed anew", number)
        if self.end is not None:
            self.problem("stands after the end row", number)
        self.last, self.last_seal, self.damaged = number, row["seal"], 0

    def check_step(self, number, step, row):
        parents, chunk = re.findall(PARTS["HASH"], row["parents"].decode()), row["chunk"]
        digest = bytes.fromhex(row["withheld"].decode()) if row["withheld"] else blake3(chunk).digest()
        if step_id(parents, digest) != step:  # [4]
            return self.problem("the id does not fit the parents and the chunk", number, step)
        kind = KIND.match(chunk)
        if not kind or not chunk.endswith(b"}"):  # [5]
            return self.problem("the chunk is not an object that begins with its kind", number, step)
        try:
            said = read_json(chunk)
            digests, objects = set(payloads_of(kind[1].decode("utf-8"), said)), list(objects_of(said))
        except ValueError:
            return self.problem("the chunk is not JSON", number, step)
        except RecursionError:
            digests, objects = set(), []  # JSON may nest deeper than Python can read, so this is no damage
        self.step_rows += 1
        self.name_objects(objects)
        self.steps[step] = min((number, self.line), self.steps.get(step, (number, self.line)))
        self.references += [(self.line, number, step, "parent", parent, self.steps) for parent in parents]
        self.references += [(self.line, number, step, "payload", digest, self.payloads) for digest in sorted(digests)]

    def name_objects(self, objects):
        for name, kind in objects:
            if (name, kind) != (EMPTY_TREE, b"tree"):
                self.named.setdefault(name, set()).add(kind)

    def check_object(self, number, name, row):  # [11]
        named, kind, size = self.named.get(name, set()), row["kind"], int(row["size"] or 0)
        if not named or kind and kind not in named or row["forgotten"] and b"blob" not in named:
            return self.problem(f"no row before it names the object {name[:8]}", number)
        if kind:
            content = object_content(kind, name, size, row["bytes"]) if size <= MAX_BYTES[kind] else None
            entries = entries_of(content) if content and kind == b"tree" else []
            if content is None or entries is None:
                return self.problem(f"the object does not fit its id {name[:8]}", number)
            self.name_objects(entries)
        self.objects.add(name)

    def check_payload(self, number, digest, data):
        if blake3(data).hexdigest() != digest:  # [7]
            return self.problem(f"the payload does not fit its digest {digest[:8]}", number)
        self.payloads[digest] = min((number, self.line), self.payloads.get(digest, (number, self.line)))


def verify(path):
    """Prints what there is to say about one file, and returns its exit code."""
    report = Report()
    try:
        with open(path, "rb") as file:
            report.check_file(file)
    except (CannotCheck, OSError, MemoryError) as error:
        print(f"{path}: {str(error) or 'needs more memory than there is'}", file=sys.stderr)
        return 1
    rows, steps, problems = report.rows, report.step_rows, report.problems
    for problem in problems:
        print(f"{path}: {problem}")
    if problems:
        print(f"{path}: damaged, {rows} good rows, {steps} steps, {len(problems)} problem{'s'[:len(problems) > 1]}")
    else:
        print(f"{path}: whole, {rows} rows, {steps} steps")
    return 3 if problems else 0


def main():
    parser = argparse.ArgumentParser(description="Check rath session files.")
    parser.add_argument("files", nargs="+", metavar="FILE")
    for stream in (sys.stdout, sys.stderr):
        # File names can hold characters that the terminal's encoding lacks.
        stream.reconfigure(errors="backslashreplace")
    return max([verify(path) for path in parser.parse_args().files])


if __name__ == "__main__":
    sys.exit(main())
