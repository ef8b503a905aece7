//! Compares pairs of measurements and prints a table. Ratios only: a number of its own would rot.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Counts what is allocated, so that a benchmark can bound memory too.
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static TOTAL: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code, reason = "a global allocator cannot be written without; every call goes on to the system's")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        TOTAL.fetch_add(layout.size(), Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the bytes that `work` allocates, whether or not they are freed.
pub fn allocated<T>(work: impl FnOnce() -> T) -> usize {
    let before = TOTAL.load(Relaxed);
    let made = work();
    let after = TOTAL.load(Relaxed);
    drop(made);
    after - before
}

/// Returns the peak of the bytes that `work` holds, beyond those held before.
pub fn peak(work: impl FnOnce()) -> usize {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    work();
    PEAK.load(Relaxed).saturating_sub(before)
}

/// Times one piece of work.
pub fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Returns the CPU time that all threads of this process have used.
pub fn cpu_now() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or_default())
}

/// Returns the CPU time of `work`, on all threads of this process.
pub fn cpu_time(work: impl FnOnce()) -> Duration {
    let start = cpu_now();
    work();
    cpu_now() - start
}

/// Returns the CPU time of the processes that this one started and waited for; 0 where there is no `/proc`. It is counted in hundredths
/// of a second: measure many.
pub fn children_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program comes before, and may contain anything. `cutime` and `cstime` are the fields 16 and 17.
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' ').skip(16 - 3).take(2)).into_iter().flatten();
    let hundredths: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(hundredths * 10)
}

/// Returns the resident memory of this process, in bytes.
pub fn memory() -> usize {
    status("VmRSS:")
}

/// Returns the peak of the resident memory of this process, in bytes.
pub fn peak_memory() -> usize {
    status("VmHWM:")
}

/// A number of kilobytes that the system tells about this process, as bytes; 0 where there is no such system.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0_usize) * 1024
}

/// Lets this process hold as many files and connections as the system allows.
pub fn many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Times two pieces of work in turn, so that what disturbs the machine disturbs both, and returns their medians.
pub fn medians(rounds: usize, mut one: impl FnMut(), mut other: impl FnMut()) -> (Duration, Duration) {
    time(&mut one);
    time(&mut other);
    let mut pairs: (Vec<_>, Vec<_>) = (0..rounds).map(|_| (time(&mut one), time(&mut other))).unzip();
    pairs.0.sort();
    pairs.1.sort();
    (pairs.0[rounds / 2], pairs.1[rounds / 2])
}

/// The rows of a table, and whether all of them kept their bounds.
#[derive(Default)]
pub struct Table {
    rows: Vec<[String; 4]>,
    missed: bool,
}

impl Table {
    /// Adds a ratio that may not be above its bound.
    pub fn at_most(&mut self, what: &str, ratio: f64, bound: f64) {
        self.row(what, format!("{ratio:.2}×"), format!("at most {bound}×"), ratio <= bound);
    }

    /// Adds a ratio that may not be below its bound.
    pub fn at_least(&mut self, what: &str, ratio: f64, bound: f64) {
        self.row(what, format!("{ratio:.2}×"), format!("at least {bound:.2}×"), ratio >= bound);
    }

    /// Adds a ratio without a bound, for comparison.
    pub fn informative(&mut self, what: &str, ratio: f64) {
        self.row(what, format!("{ratio:.2}×"), "informative".to_owned(), true);
    }

    /// Adds a number of bytes that must be below its bound.
    pub fn bytes(&mut self, what: &str, bytes: usize, bound: usize) {
        self.row(what, format!("{bytes} B"), format!("below {bound} B"), bytes < bound);
    }

    fn row(&mut self, what: &str, found: String, bound: String, kept: bool) {
        self.missed |= !kept;
        self.rows.push([what.to_owned(), found, bound, if kept { "ok" } else { "MISSED" }.to_owned()]);
    }

    /// Prints the table and ends the program, with 1 if a bound was missed.
    pub fn print(self) -> ! {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let widths = [width(0), width(1), width(2)];
        for [what, found, bound, kept] in &self.rows {
            println!("{what:<0$}  {found:>1$}  {bound:<2$}  {kept}", widths[0], widths[1], widths[2]);
        }
        std::process::exit(i32::from(self.missed))
    }
}

/// The paths that are hidden from an isolated command, for bubblewrap to hide as well.
const HIDDEN: [&str; 9] =
    ["/run", "/home", "/root", "/mnt", "/media", "/var/lib", "/var/log", "/var/spool", "/etc/ssh"];

/// Returns `true` in bubblewrap, with the restrictions of an isolated sandbox. None if it is not here or cannot do it.
pub fn bubblewrap(workspace: &Path) -> Option<Command> {
    let mut bwrap = Command::new("bwrap");
    bwrap.args(["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "rath"]);
    bwrap.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]);
    for hidden in HIDDEN.iter().filter(|path| Path::new(path).is_dir()) {
        bwrap.args(["--tmpfs", hidden]);
    }
    bwrap.arg("--bind").arg(workspace).arg(workspace).arg("--chdir").arg(workspace).arg("true");
    bwrap.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success()).then_some(bwrap)
}
