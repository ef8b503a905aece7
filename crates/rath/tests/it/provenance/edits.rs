//! The kinds of edit.

use serde_json::json;

use super::plan::{DIRECTORIES, NAMES, Planned, Planner, WIDTH, above, here, py, sh};

impl Planner<'_> {
    pub(super) const KINDS: u64 = 47;

    /// One kind of edit, if what is there allows it.
    pub(super) fn edit(&mut self, kind: u64) -> Option<Planned> {
        match kind {
            0..=13 => self.write(kind),
            14..=24 => self.put_elsewhere(kind),
            25..=34 => self.change_nothing_much(kind),
            35..=39 => self.by_python(kind),
            _ => self.by_tool(kind),
        }
    }

    /// Plans a call that writes lines.
    fn write(&mut self, kind: u64) -> Option<Planned> {
        let (line, text) = (self.line(), self.text());
        if kind < 4 {
            let to = if kind < 3 { self.free(&NAMES)? } else { self.file(0)? };
            return self.shell(here(&to, &text));
        }
        let at = self.file(2)?;
        let (file, count) = (sh(&at), self.count(&at));
        let nth = 1 + self.chance.below(count);
        let command = match kind {
            4 => format!("sed -i '{nth}s/.*/{line}/' {file}"),
            5 => format!("sed -i {nth}d {file}"),
            6 => format!("sed -i '{nth}i {line}' {file}"),
            7 => format!("echo {line} >> {file}"),
            8 => format!("printf '%s\\n' '{line}' | tee {file} >/dev/null"),
            9 => format!("printf '%s\\n' '{line}' | tee -a {file} >/dev/null"),
            10 => format!("head -n {nth} {file} > tmp.$$ && mv tmp.$$ {file}"),
            // As long as what was there: neither the size nor the number of lines changes.
            11 => format!("echo {line} | dd of={file} conv=notrunc bs={} seek={} 2>/dev/null", WIDTH + 1, nth - 1),
            12 => format!(": > {file}"),
            // It fails half way.
            _ => format!("set -e; echo {line} >> {file}; false; echo never > never.txt"),
        };
        self.shell(command)
    }

    /// Lines that go elsewhere, or away.
    fn put_elsewhere(&mut self, kind: u64) -> Option<Planned> {
        let line = self.line();
        match kind {
            14 | 15 => {
                let (from, to) = (self.file(1)?, self.free(&NAMES)?);
                self.shell(format!("{}mv {} {}", above(&to), sh(&from), sh(&to)))?.moves(&from, &to)
            }
            16 => {
                let (from, to) = (self.file(4)?, self.free(&NAMES)?);
                let (count, file) = (self.count(&from), sh(&to));
                let nth = 1 + self.chance.below(count);
                let edit = format!("sed -i '{nth}s/.*/{line}/' {file}");
                self.shell(format!("{}mv {} {file} && {edit}", above(&to), sh(&from)))?.moves(&from, &to)
            }
            17 => {
                let (from, to) = (self.directory()?, self.free(&DIRECTORIES)?);
                let nested = to.starts_with(&from) || from.starts_with(&to);
                let command = format!("{}mv {} {}", above(&to), sh(&from), sh(&to));
                if nested { None } else { self.shell(command)?.moves(&from, &to) }
            }
            18 => {
                let (from, to) = (self.apart(1)?, self.apart(1)?);
                (from != to).then_some(())?;
                self.shell(format!("mv {} {}", sh(&from), sh(&to)))?.moves(&from, &to)
            }
            19 => {
                let (one, other) = (self.apart(1)?, self.apart(1)?);
                (one != other).then_some(())?;
                let [one, other] = [sh(&one), sh(&other)];
                self.shell(format!("mv {one} tmp.$$; mv {other} {one}; mv tmp.$$ {other}"))?.anywhere()
            }
            20 => {
                let gone = sh(&self.file(0)?);
                self.shell(format!("rm {gone}"))
            }
            21 => {
                let gone = sh(&self.directory()?);
                // Not too often, or nothing is left.
                if self.chance.below(4) > 0 { None } else { self.shell(format!("rm -r {gone}")) }
            }
            22 => {
                let (from, to) = (self.file(1)?, self.free(&NAMES)?);
                self.shell(format!("{}cp {} {}", above(&to), sh(&from), sh(&to)))
            }
            23 => {
                // From then on, what is written in place is in both.
                let (from, to) = (self.apart(1)?, self.free(&NAMES)?);
                self.shell(format!("{}ln {} {}", above(&to), sh(&from), sh(&to)))
            }
            _ => {
                let file = sh(&self.file(2)?);
                self.shell(format!("sort -r -o {file} {file}"))?.anywhere()
            }
        }
    }

    /// Changes that touch no line: metadata, links, directories, ignored files, or nothing at all.
    fn change_nothing_much(&mut self, kind: u64) -> Option<Planned> {
        let (line, file) = (self.line(), sh(&self.apart(1)?));
        let command = match kind {
            25 => format!("if [ -x {file} ]; then chmod -x {file}; else chmod +x {file}; fi"),
            26 => {
                let free = self.free(&[b"link", b"sub/link", b"dangling"])?;
                format!("{}ln -s {file} {}", above(&free), sh(&free))
            }
            27 => format!("mkdir -p {}", sh(&self.free(&DIRECTORIES)?)),
            28 => format!("touch {file}; rmdir 'd d' other 2>/dev/null; true"),
            29 => format!("cat {file} > tmp.$$; cat tmp.$$ > {file}; rm tmp.$$"),
            30 => format!("cp -p {file} tmp.$$; echo {line} >> {file}; mv tmp.$$ {file}; ls; echo x > t; rm t"),
            31 => format!("echo {line} >> x.log; mkdir -p out; echo {line} >> out/$(($$ % 3)).txt"),
            // A file gives way to a directory, and the other way round.
            32 => format!("rm {file}; mkdir {file}; echo {line} > {file}/inside.txt"),
            33 => "true".to_owned(),
            // What is left running is ended with the call, and nothing it wrote is missed.
            _ => format!("setsid sh -c 'while :; do echo {line} >> late.txt; done' & (echo {line} >> {file})"),
        };
        self.shell(command)
    }

    /// Plans an edit by a Python program, in place.
    fn by_python(&mut self, kind: u64) -> Option<Planned> {
        let (line, at) = (self.line(), self.file(2)?);
        let nth = self.chance.below(self.count(&at)) * (WIDTH as u64 + 1);
        let (file, width) = (py(&at), WIDTH);
        let restored = |edit: &str| {
            format!(
                "import os, mmap\ns = os.stat({file})\n{edit}\nos.utime({file}, ns=(s.st_atime_ns, s.st_mtime_ns))\n"
            )
        };
        match kind {
            35 => self.python(restored(&format!(
                "with open({file}, 'r+b') as f:\n m = mmap.mmap(f.fileno(), 0)\n n = min({width}, len(m) - {nth})\n \
                 m[{nth}:{nth}+n] = b'{line}'[:n]\n m.flush()"
            ))),
            36 => {
                self.python(restored(&format!("with open({file}, 'r+b') as f:\n f.seek({nth})\n f.write(b'{line}')")))
            }
            37 => self.python(restored(&format!("with open({file}, 'r+b') as f:\n f.truncate({nth})"))),
            _ => {
                let (one, other) = (self.free(&NAMES)?, self.file(1)?);
                let names = [one, other, at].map(|name| py(&name)).join(", ");
                let code = format!(
                    "import os\nfor name in [{names}]:\n os.makedirs(os.path.dirname(name) or b'.', exist_ok=True)\n \
                     with open(name, 'ab') as f:\n  f.write(b'{line}\\n')\n"
                );
                self.python(code)
            }
        }
    }

    /// The tools that write files, and programs for bash.
    fn by_tool(&mut self, kind: u64) -> Option<Planned> {
        let (line, text) = (self.line(), self.text());
        let plain: Vec<&[u8]> = NAMES.into_iter().filter(|name| std::str::from_utf8(name).is_ok()).collect();
        match kind {
            40 | 41 => {
                let at = if kind == 40 { self.free(&plain)? } else { self.file(0)? };
                let path = String::from_utf8(at).ok()?;
                Some(self.call("write_file", json!({ "path": path, "content": text })))
            }
            42..=44 => {
                let at = self.file(1)?;
                let content = String::from_utf8(self.content(&at)?.clone()).ok()?;
                let old = self.one(&content.lines().collect::<Vec<_>>())?;
                let path = String::from_utf8(at).ok()?;
                // One that is not there is refused, and changes nothing.
                let old = if kind == 44 { "nothing like it" } else { old };
                Some(self.call("edit_file", json!({ "path": path, "old_string": old, "new_string": line })))
            }
            _ => {
                let file = sh(&self.file(1)?);
                let code = format!("cat {file} > /dev/null; exec 3>>{file}; echo {line} >&3; exec 3>&-; exit 3");
                Some(self.call("run_code", json!({ "language": "bash", "code": code })))
            }
        }
    }
}
