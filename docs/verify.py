"""Checks rath session files. Follows docs/format.md, and is meant to be read next to it.

Needs Python 3.9 or later and the package blake3 (pip install blake3):

    python docs/verify.py FILE...

Prints a line for each problem, with its place, and a summary for each file. Exit codes: 0 if every file is whole, 3 if
one is damaged or cut, otherwise 1 if one cannot be read, is no session file or has a newer version, 2 for wrong use.
"""
import argparse
import base64
import itertools
import json
import re
import sys

try:
    from blake3 import blake3
except ImportError:
    sys.exit("the package blake3 is needed: pip install blake3")

MAX_ROW = 2**30  # with its line break
MAX_PLACES = 64  # where rows are looked for in a damaged line; without a limit, a hostile file could take for ever

PARTS = {
    "SEAL": "[0-9a-f]{32}",
    "HASH": "[0-9a-f]{64}",
    "UUID": "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "USAGE": r"\{TOKENS\}".replace("TOKENS", "".join(
        rf'(?:"{name}":NUMBER(?:,(?=")|(?=\}})))?'
        for name in ["input", "output", "cached_read", "cache_write", "reasoning"])),
    # Twenty digits hold every number below 2^64, and keep int() away from endless ones.
    "NUMBER": "(?:0|[1-9][0-9]{0,19})(?![0-9])",
}
# The shortest match for `by` is the right one: in a string every quote is escaped, so `",` ends it, unless the quote is
# an escaped one and the string ends right after the comma; then the row is laid out wrong, and `by` is no JSON string.
LAYOUT = r"""
\{"seal":"(?P<seal>SEAL)",
(?: "format":"rath\ record","version":(?: 1\} | (?!1\b)(?P<later>(?!0)NUMBER).* )
  | "prev":"(?P<prev>SEAL)","n":(?P<n>(?!0)NUMBER),
    (?: "id":"(?P<id>HASH)","parents":\[(?P<parents>(?:"HASH"(?:,"HASH")?)?)\],"branch":"UUID"
        (?:,"by":(?P<by>".*?"))? (?:,"usage":(?P<usage>USAGE))? (?:,"at":(?P<at>-?NUMBER))? ,"chunk":(?P<chunk>.*)\}
      | "payload":"(?P<payload>HASH)",(?: "text":(?P<text>".*") | "base64":"(?P<base64>[^"]*)" )\}
      | "end":(?P<end>NUMBER)\}
    )
)"""
for part, pattern in PARTS.items():
    LAYOUT = LAYOUT.replace(part, pattern)
ROW = re.compile(LAYOUT.encode(), re.DOTALL | re.VERBOSE)
ROW_START = re.compile(rb'\{"seal":"')
KIND = re.compile(rb'\{"kind":"([^"\\]+)"')

# The texts and blobs in chunks, by kind: there, and only there, payloads are referred to. * is each item of a list.
TEXTS = """
    instructions.text user.text user.images.*.blob assistant.text assistant.reasoning assistant.calls.*.arguments
    tool_result.output memory.event.remember.text memory.event.recall.query memory.event.recall.found.*.text
    compressed.summary selected.reply checked.output retry.error interrupted.reason denied.reason failed.message
    note.text
""".split()


class CannotCheck(Exception):
    """The file is no session file, or has a newer version."""


def read_lines(file):
    """Each line, with its line break if it has one."""
    limit = 2 * MAX_ROW  # holds two rows with a destroyed line break between them
    while line := file.readline(limit):
        if len(line) == limit and not line.endswith(b"\n"):
            while (rest := file.readline(limit)) and not rest.endswith(b"\n"):
                pass
            # It is damaged whatever it holds, and would fill the memory.
            line = line[:len(ROW_START)] + rest[-1:]
        yield line


def read_json(raw):
    def refuse(name):
        raise ValueError(name + " is not JSON")

    # No number is looked at, and int() refuses long ones.
    return json.loads(raw.decode("utf-8"), parse_constant=refuse, parse_int=float)


def seal_fits(raw):
    return blake3(raw[43:]).hexdigest()[:32].encode() == raw[9:41]


def read_row(raw):
    """The members of a good row by name, those it does not have as None; or None if it is not good."""
    match = len(raw) < MAX_ROW and raw.endswith(b"}") and ROW.fullmatch(raw)
    if not match or not seal_fits(raw):
        return None
    row = match.groupdict()
    numbers = [row["n"], row["later"], row["end"], *re.findall(rb"[0-9]+", row["usage"] or b"")]
    if any(int(number or 0) >= 2**64 for number in numbers) or not -2**63 <= int(row["at"] or 0) < 2**63:
        return None
    try:
        read_json(row["by"] or b'""')
        row["bytes"] = payload_bytes(row) if row["payload"] else None
    except ValueError:
        return None
    return row


def payload_bytes(row):
    if row["text"] is not None:
        return read_json(row["text"]).encode("utf-8")
    data = base64.b64decode(row["base64"], validate=True)
    if base64.b64encode(data) != row["base64"]:
        raise ValueError("not base64 as it is written")
    return data


def rows_in_damaged_line(line):
    """The good row at the beginning of a line and the one at its end, where a line break became another byte."""
    found = itertools.islice(re.finditer(re.escape(ROW_START), line), MAX_PLACES + 1)
    places = [match.start() for match in found if match.start() > 0][:MAX_PLACES]
    first, first_end = None, 0
    for place in places + [len(line)]:
        if first := read_row(line[:place - 1]):
            first_end = place
            break
    rests = (read_row(line[place:]) for place in places if place >= first_end)
    return first, next((row for row in rests if row), None)


def step_id(parents, chunk):
    raw_parents = b"".join(bytes.fromhex(parent) for parent in parents)
    return blake3(b"rath step 1\n" + bytes([len(parents)]) + raw_parents + blake3(chunk).digest()).hexdigest()


def payloads_of(kind, chunk):
    """The digests of the payloads that a chunk refers to."""
    for path in TEXTS.get(kind, []):
        values = [chunk]
        for name in path.split("."):
            if name == "*":
                values = [item for value in values if isinstance(value, list) for item in value]
            else:
                values = [value[name] for value in values if isinstance(value, dict) and name in value]
        for value in values:
            digest = value.get("digest") if isinstance(value, dict) else None
            if isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest):
                yield digest


class Report:
    """What is known of a file, line by line. Numbers in brackets are those of the rules in docs/format.md."""

    def __init__(self):
        self.problems = []
        self.line = 0
        self.rows = self.step_rows = 0
        self.last, self.last_seal = -1, None  # the last row
        self.damaged = 0  # lines since the last row
        self.steps, self.payloads = {}, {}  # the smallest row number by id, by digest
        self.end = None
        self.cut = False

    def problem(self, what, row=None, step=None):
        place = f"line {self.line}"
        place += "" if row is None else f", row {row}"
        place += "" if step is None else f", step {step[:8]}"
        self.problems.append(f"{place}: {what}")

    def check_file(self, file):
        beginning = b""
        for self.line, line in enumerate(read_lines(file), 1):
            beginning = beginning or line[:len(ROW_START)]
            self.check_line(line)
        if not self.rows and not ROW_START.startswith(beginning):
            raise CannotCheck("is not a session file")
        if self.line == 0:
            self.line = 1
            self.problem("cut off at its beginning")
        elif self.end is None and not self.cut:
            self.problem("the last line is not the end row")  # [8]
        elif not self.problems and self.end != self.step_rows:
            self.problem(f"the end row counts {self.end} steps, but there are {self.step_rows}", self.last)

    def check_line(self, raw):
        line = raw[:-1] if raw.endswith(b"\n") else raw
        if row := read_row(line):
            self.check_row(row)
            return
        first, last = rows_in_damaged_line(line)  # [1]
        self.cut = line is raw and not first and not last and self.end is None
        if self.cut:
            self.problem("cut off in the middle of a row")
        elif first and last:
            self.problem("damaged: the line break between two rows is destroyed")
        else:
            self.problem("damaged: not laid out as a row" if seal_fits(line) else "damaged")
        if first:
            self.check_row(first)
        self.damaged += 1
        if last:
            self.check_row(last)

    def check_row(self, row):
        number = int(row["n"] or 0)
        if row["later"] and self.rows == 0:
            raise CannotCheck(f"has the newer version {int(row['later'])}; this program knows version 1")
        if row["seal"] == self.last_seal:
            self.problem("repeated", number)
            return
        self.rows += 1
        self.check_order(number, row)
        if row["id"]:
            self.check_step(number, row["id"].decode(), row)
        elif row["payload"]:
            self.check_payload(number, row["payload"].decode(), row["bytes"])
        elif row["end"]:
            self.end = int(row["end"])

    def check_order(self, number, row):
        missing = number - self.last - 1
        if missing < 0:  # [2]
            self.problem(f"out of order: stands after row {self.last}", number)
            return
        if missing > self.damaged:
            which = f"row {self.last + 1} is" if missing == 1 else f"rows {self.last + 1} to {number - 1} are"
            self.problem(f"{which} missing{' or damaged' if self.damaged else ''} before it", number)
        elif missing == 0 and number > 0 and row["prev"] != self.last_seal:  # [3]
            self.problem(f"does not follow row {self.last}: one of them was replaced or sealed anew", number)
        if self.end is not None:
            self.problem("stands after the end row", number)
        self.last, self.last_seal, self.damaged = number, row["seal"], 0

    def check_step(self, number, step, row):
        parents = re.findall("[0-9a-f]{64}", row["parents"].decode())
        self.step_rows += 1
        self.steps[step] = min(number, self.steps.get(step, number))
        if step_id(parents, row["chunk"]) != step:  # [4]
            self.problem("the id does not fit the parents and the chunk", number, step)
        for parent in parents:  # [6]
            if self.steps.get(parent, number) >= number:
                self.problem(f"its parent {parent[:8]} stands in no good row before it", number, step)
        self.check_chunk(number, step, row["chunk"])

    def check_chunk(self, number, step, raw):
        kind = KIND.match(raw)
        if not kind or not raw.endswith(b"}"):  # [5]
            self.problem("the chunk is not an object that begins with its kind", number, step)
            return
        try:
            digests = set(payloads_of(kind[1].decode("utf-8"), read_json(raw)))
        except ValueError:
            self.problem("the chunk is not JSON", number, step)
            return
        except RecursionError:
            return  # JSON may nest deeper than Python reads it; what the chunk refers to stays unknown
        for digest in sorted(digests):  # [6]
            if self.payloads.get(digest, number) >= number:
                self.problem(f"its payload {digest[:8]} stands in no good row before it", number, step)

    def check_payload(self, number, digest, data):
        self.payloads[digest] = min(number, self.payloads.get(digest, number))
        if blake3(data).hexdigest() != digest:  # [7]
            self.problem(f"the payload does not fit its digest {digest[:8]}", number)


def verify(path):
    """Prints what there is to say about one file, and returns its exit code."""
    report = Report()
    try:
        with open(path, "rb") as file:
            report.check_file(file)
    except CannotCheck as reason:
        print(f"{path}: {reason}", file=sys.stderr)
        return 1
    except (OSError, MemoryError) as error:
        print(f"{path}: cannot be read: {error}", file=sys.stderr)
        return 1
    for problem in report.problems:
        print(f"{path}: {problem}")
    if report.problems:
        count = len(report.problems)
        print(f"{path}: damaged, {report.rows} good rows, {report.step_rows} steps, {count} problems")
        return 3
    print(f"{path}: whole, {report.rows} rows, {report.step_rows} steps")
    return 0


def main():
    parser = argparse.ArgumentParser(description="Check rath session files.")
    parser.add_argument("files", nargs="+", metavar="FILE")
    for stream in (sys.stdout, sys.stderr):
        # File names can hold characters that the terminal's encoding lacks.
        stream.reconfigure(errors="backslashreplace")
    return max([verify(path) for path in parser.parse_args().files])


if __name__ == "__main__":
    sys.exit(main())
