//! The environment of this program, out of sight of its commands.

/// Moves the environment variables of this program to memory where `/proc/PID/environ` does not show them.
///
/// A supervisor shares the memory of this program, so a command in a `local:` sandbox would find the variables, with the keys
/// of providers, in `/proc/$PPID/environ`. They stay where the kernel put them if the program has other threads, which may be
/// reading them: call this first in `main`. A process that may trace this one can still read its memory.
///
/// Returns true if the variables are hidden.
///
/// ```
/// # fn start() {}
/// fn main() {
///     rath_sandbox::hide_environment();
///     start();
/// }
/// ```
pub fn hide_environment() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let Some((start, end)) = environment_range().filter(|(start, end)| threads == 1 && start < end) else {
        return false;
    };
    let is_valid = |name: &std::ffi::OsStr| !name.is_empty() && !name.as_encoded_bytes().contains(&b'=');
    let variables: Vec<_> = std::env::vars_os().filter(|(name, _)| is_valid(name)).collect();
    for (name, value) in variables {
        #[allow(unsafe_code, reason = "setting a variable is not safe while other threads read it")]
        // SAFETY: there is one thread. The C library stores a copy of the variable.
        unsafe {
            std::env::set_var(name, value);
        }
    }
    #[allow(unsafe_code, reason = "the memory belongs to the kernel's start-up code")]
    // SAFETY: the kernel mapped this range for the variables, writable, and nothing else is in it. All valid variables have
    // been copied, so that no pointer of the C library leads here but those of invalid ones, which are empty from now on.
    unsafe {
        std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(start), 0, end - start);
    }
    true
}

/// Returns the addresses between which the kernel put the variables.
fn environment_range() -> Option<(usize, usize)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program comes before, and may contain anything. `env_start` and `env_end` are the fields 50 and 51.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(50 - 3).map(|field| field.trim().parse().ok());
    Some((fields.next()??, fields.next()??))
}
