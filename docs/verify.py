"""Verifier for rath session files, written from docs/format.md alone.

Run it with Python 3.9 or later and the package `blake3` (pip install blake3):

    python docs/verify.py FILE...

It prints one line for each problem, with its place, and a summary for each file. The exit code is 0 if every file is
whole, 3 if any is damaged or not closed, and 1 if a file cannot be read, is no session file or has a newer version.
"""
import argparse
import base64
import json
import re
import sys

try:
    from blake3 import blake3
except ImportError:
    sys.exit("the package blake3 is needed: pip install blake3")

VERSION = 1
MAX_ROW = 2**30
SEAL_START = b'{"seal":"'
HEX32, HEX64 = rb"[0-9a-f]{32}", rb"[0-9a-f]{64}"
UUID = rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# Twenty digits hold every number below 2^64, and keep int() away from endless digits.
NUMBER = rb"(?:0|[1-9][0-9]{0,19})"
STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
USAGE_NAMES = [b"input", b"output", b"cached_read", b"cache_write", b"reasoning"]
USAGE = rb"\{" + b"".join(rb'(?:"' + name + rb'":' + NUMBER + rb'(?:,(?=")|(?=\})))?' for name in USAGE_NAMES) + rb"\}"

SEALED = re.compile(rb'\{"seal":"' + HEX32 + rb'",')
ROW_START = re.compile(SEALED.pattern + rb'"(?:prev|format)":"')
HEADER = re.compile(rb'"format":"rath record","version":(' + NUMBER + rb")(?![0-9])")
CHAIN = re.compile(rb'"prev":"(' + HEX32 + rb')","n":([1-9][0-9]{0,19}),')
STEP = re.compile(
    rb'"id":"(' + HEX64 + rb')","parents":\[((?:"' + HEX64 + rb'"(?:,"' + HEX64 + rb'")?)?)\],"branch":"' + UUID
    + rb'"(?:,"by":(' + STRING + rb'))?(?:,"usage":(' + USAGE + rb'))?(?:,"at":-?' + NUMBER + rb')?,"chunk":')
PAYLOAD = re.compile(rb'"payload":"(' + HEX64 + rb')","(text|base64)":(?=")')
END = re.compile(rb'"end":(' + NUMBER + rb")\}")
KIND = re.compile(rb'\{"kind":"([^"\\]+)"')

# Where a chunk may hold a reference to a payload; * stands for every item of a list.
TEXTS_AND_BLOBS = {
    "instructions": ["text"],
    "user": ["text", "images.*.blob"],
    "assistant": ["text", "reasoning", "calls.*.arguments"],
    "tool_result": ["output"],
    "memory": ["event.remember.text", "event.recall.query", "event.recall.found.*.text"],
    "compressed": ["summary"],
    "selected": ["reply"],
    "checked": ["output"],
    "retry": ["error"],
    "interrupted": ["reason"],
    "denied": ["reason"],
    "failed": ["message"],
    "note": ["text"],
}


class CannotCheck(Exception):
    """The file is not one that this verifier can judge."""


def is_whole(row):
    return bool(SEALED.match(row)) and blake3(row[43:]).hexdigest()[:32].encode() == row[9:41]


def find_whole_rows(line):
    """The (start, end) of each whole row inside a damaged line."""
    starts = [match.start() for match in ROW_START.finditer(line)]
    borders = starts + [len(line)]
    found, past = [], 0
    for index, start in enumerate(starts):
        if start < past:
            continue
        # Free JSON inside a chunk can look like the start of a row, so a row may go on past the next few starts;
        # only a few, or a hostile line could keep the search busy for ever.
        # One byte less is tried too, because the line break may have become another byte instead of being lost.
        for end in (end for border in borders[index + 1:index + 9] for end in (border, border - 1)):
            if is_whole(line[start:end]):
                found.append((start, end))
                past = end
                break
    return found


def read_json(raw):
    """The value of strict JSON; a ValueError if it is not, or is nested too deeply for this program."""
    def refuse(name):
        raise ValueError(name + " is not JSON")

    def integer(digits):
        return int(digits) if len(digits) <= 20 else float(digits)

    try:
        return json.loads(raw.decode("utf-8"), parse_constant=refuse, parse_int=integer)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def members_are_right(by, usage):
    """What the pattern of a step row leaves open about its optional members."""
    try:
        read_json(by or b'""')
    except ValueError:
        return False
    return all(int(value) < 2**64 for value in re.findall(rb"[0-9]+", usage or b""))


def values_at(value, path):
    values = [value]
    for name in path.split("."):
        if name == "*":
            values = [item for each in values if isinstance(each, list) for item in each]
        else:
            values = [each[name] for each in values if isinstance(each, dict) and name in each]
    return values


def references(kind, chunk):
    for path in TEXTS_AND_BLOBS.get(kind, []):
        for value in values_at(chunk, path):
            if isinstance(value, dict) and set(value) == {"digest", "bytes"}:
                is_digest = isinstance(value["digest"], str) and re.fullmatch("[0-9a-f]{64}", value["digest"])
                yield value["digest"] if is_digest else "?", value["bytes"]


def step_id(parents, chunk):
    raw_parents = b"".join(bytes.fromhex(parent) for parent in parents)
    return blake3(b"rath step 1\n" + bytes([len(parents)]) + raw_parents + blake3(chunk).digest()).hexdigest()


def payload_bytes(form, raw):
    """What a payload row stores, or ValueError."""
    if form == b"text":
        text = read_json(raw)
        if not isinstance(text, str) or not raw.endswith(b'"'):
            raise ValueError("not a JSON string")
        return text.encode("utf-8")
    data = base64.b64decode(raw[1:-1], validate=True)
    if b'"' + base64.b64encode(data) + b'"' != raw:
        raise ValueError("not plain base64")
    return data


def read_lines(file):
    """Each line as (bytes without its line break, whether it had one); None for the bytes of an overlong line."""
    while True:
        line = file.readline(MAX_ROW + 1)
        if not line:
            return
        overlong = len(line) > MAX_ROW and not line.endswith(b"\n")
        while overlong and line and not line.endswith(b"\n"):
            line = file.readline(MAX_ROW)
        ended = line.endswith(b"\n")
        yield None if overlong else line[:-1] if ended else line, ended


class Checker:
    def __init__(self):
        self.problems = []
        self.line = 0
        self.seals = {}  # by row number
        self.last = -1  # the highest row number so far
        self.damaged_since_last = 0
        self.steps = {}  # row number by step id
        self.payloads = {}  # row number and length by digest
        self.good_rows = self.step_rows = 0
        self.closed = self.cut = self.told_of_lines_after_end = False

    def problem(self, what, row=None, step=None):
        place = f"line {self.line}"
        place += "" if row is None else f", row {row}"
        place += "" if step is None else f", step {step[:8]}"
        self.problems.append(f"{place}: {what}")

    def check_file(self, file):
        looks_right = False
        for line, ended in read_lines(file):
            self.line += 1
            if self.line == 1 and line:
                looks_right = (line.startswith(SEAL_START) or b'"format":"rath record"' in line
                               or not ended and SEAL_START.startswith(line))
            self.check_line(line, ended)
        if not self.seals and not looks_right:
            raise CannotCheck("is empty" if self.line == 0 else "is not a session file")
        if not self.closed and not self.cut:
            self.problem("ends without its closing row")

    def check_line(self, line, ended):
        if self.closed and not self.told_of_lines_after_end:
            self.told_of_lines_after_end = True
            self.problem("stands after the closing row")
        if line is None:
            self.damaged("damaged: longer than a row may be")
        elif is_whole(line):
            self.check_row(line)
        else:
            self.check_damaged_line(line, ended)

    def check_damaged_line(self, line, ended):
        found = find_whole_rows(line)
        past = 0
        for start, end in found:
            if start - past > 1 or (past == 0 and start > 0):
                self.damaged_piece(line[past:start])
            elif past > 0:
                self.problem("the line break between two rows is destroyed")
            self.check_row(line[start:end])
            past = end
        rest = line[past:]
        if found and len(rest) <= 1:
            if rest:
                self.problem("a stray byte stands after the row")
        elif ended or self.closed:
            self.damaged_piece(rest)
        else:
            self.cut = True
            self.damaged("cut off in the middle of a row")

    def damaged_piece(self, piece):
        self.damaged("damaged: the seal does not fit" if SEALED.match(piece) else "damaged: does not begin as a row")

    def damaged(self, what):
        self.damaged_since_last += 1
        self.problem(what)

    def check_row(self, row):
        """A row whose seal fits."""
        seal, body = row[9:41], row[43:]
        header, chain = HEADER.match(body), CHAIN.match(body)
        if header:
            version = int(header[1])
            if version > VERSION and not self.seals:
                raise CannotCheck(f"has format version {version}; this verifier knows versions up to {VERSION}")
            number, prev = 0, None
        elif chain and int(chain[2]) < 2**64:
            number, prev = int(chain[2]), chain[1]
        else:
            self.damaged("the seal fits, but this is not laid out as a row")
            return
        if self.seals.get(number) == seal:
            self.problem("repeated", number)
            return
        self.check_order(number, seal, prev)
        if header:
            good = body == b'"format":"rath record","version":%d}' % VERSION or self.bad_layout(number)
        else:
            good = self.check_content(number, body[chain.end():])
        self.good_rows += good

    def check_order(self, number, seal, prev):
        if number in self.seals:
            self.problem("another row has the same number", number)
            return
        self.seals[number] = seal
        if number < self.last:
            # The highest row stays the last one, so that one row out of place is not reported at its neighbours too.
            self.problem(f"out of order: stands after row {self.last}", number)
            return
        gap = number - self.last - 1
        if gap > self.damaged_since_last:
            which = f"row {self.last + 1} is" if gap == 1 else f"rows {self.last + 1} to {number - 1} are"
            but = " or damaged" if self.damaged_since_last else ""
            self.problem(f"{which} missing{but} before it", number)
        elif gap == 0 and prev is not None and prev != self.seals[self.last]:
            self.problem("does not follow from the row before, which was changed and sealed anew", number)
        self.last = number
        self.damaged_since_last = 0

    def bad_layout(self, number, step=None):
        self.problem("the seal fits, but the row is not laid out as it should be", number, step)
        return False

    def check_content(self, number, content):
        """Whether the row is good in itself; what it lacks from other rows is reported but not held against it."""
        step, payload, end = STEP.match(content), PAYLOAD.match(content), END.fullmatch(content)
        if step and content.endswith(b"}"):
            return self.check_step(number, step, content[step.end():-1])
        if payload and content.endswith(b'"}'):
            return self.check_payload(number, payload[1].decode(), payload[2], content[payload.end():-1])
        if end and int(end[1]) < 2**64:
            return self.check_end(number, int(end[1]))
        return self.bad_layout(number)

    def check_step(self, number, match, chunk):
        step, parents = match[1].decode(), re.findall("[0-9a-f]{64}", match[2].decode())
        self.step_rows += 1
        self.steps.setdefault(step, number)
        good = members_are_right(match[3], match[4]) or self.bad_layout(number, step)
        if step_id(parents, chunk) != step:
            self.problem("the id does not fit the parents and the chunk", number, step)
            good = False
        for parent in parents:
            if self.steps.get(parent, number) >= number:
                self.problem(f"its parent {parent[:8]} stands in no good row before it", number, step)
        return self.check_chunk(number, step, chunk) and good

    def check_chunk(self, number, step, raw):
        kind = KIND.match(raw)
        try:
            chunk = read_json(raw)
        except ValueError:
            self.problem("the chunk is not JSON, or is nested too deeply to be read", number, step)
            return False
        if not kind or not raw.endswith(b"}"):
            self.problem("the chunk is not an object that begins with its kind", number, step)
            return False
        for digest, length in references(kind[1].decode("utf-8"), chunk):
            row, known_length = self.payloads.get(digest, (number, None))
            if row >= number:
                self.problem(f"its payload {digest[:8]} stands in no good row before it", number, step)
            elif known_length is not None and (type(length) is not int or length != known_length):
                self.problem(f"its payload {digest[:8]} has {known_length} bytes, not as many as said", number, step)
        return True

    def check_payload(self, number, digest, form, raw):
        try:
            data = payload_bytes(form, raw)
        except ValueError:
            self.payloads.setdefault(digest, (number, None))
            return self.bad_layout(number)
        fits = blake3(data).hexdigest() == digest
        self.payloads.setdefault(digest, (number, len(data) if fits else None))
        if not fits:
            self.problem(f"the payload does not fit its digest {digest[:8]}", number)
        return fits

    def check_end(self, number, count):
        self.closed = True
        # Rows that are lost may have been steps, and are reported where they should stand.
        lost = max(0, number - self.good_rows)
        if not self.step_rows <= count <= self.step_rows + lost:
            self.problem(f"the closing row counts {count} steps, but there are {self.step_rows}", number)
        return True


def verify(path):
    """Prints what there is to say about one file, and returns its exit code."""
    checker = Checker()
    try:
        with open(path, "rb") as file:
            checker.check_file(file)
    except CannotCheck as reason:
        print(f"{path}: {reason}", file=sys.stderr)
        return 1
    except (OSError, MemoryError) as error:
        print(f"{path}: cannot be read: {error}", file=sys.stderr)
        return 1
    for problem in checker.problems:
        print(f"{path}: {problem}")
    rows, steps, problems = checker.good_rows, checker.step_rows, len(checker.problems)
    if problems:
        print(f"{path}: damaged, {rows} good rows, {steps} steps, {problems} problems")
        return 3
    print(f"{path}: whole, {rows} rows, {steps} steps")
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
