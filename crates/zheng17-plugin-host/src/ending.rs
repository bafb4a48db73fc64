//! A plugin that ends the process, which could pass for a good end of the program: seen when the process ends while code of a
//! plugin is running, and made a failure that names it. `_exit` can't be seen from within.

use std::cell::Cell;
use std::io::Write as _;
use std::ptr::NonNull;
use std::sync::Once;

/// Whose code this thread is running, and what it was called for.
#[derive(Clone, Copy)]
struct Running {
    whose: NonNull<str>,
    what: &'static str,
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
}

/// Puts back what was there before, after a panic too.
struct Before(Option<Running>);

impl Drop for Before {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

/// Runs code of a plugin.
pub(crate) fn running<T>(whose: &str, what: &'static str, f: impl FnOnce() -> T) -> T {
    static WATCHED: Once = Once::new();
    // SAFETY: the function takes nothing, and stays where it is. If the system has no room for it, nothing is watched.
    let watch = || unsafe { libc::atexit(at_exit) };
    WATCHED.call_once(|| {
        watch();
    });
    let _before = Before(RUNNING.replace(Some(Running { whose: NonNull::from(whose), what })));
    f()
}

extern "C" fn at_exit() {
    let Ok(Some(Running { whose, what })) = RUNNING.try_with(Cell::get) else { return };
    // SAFETY: this thread is still within `running`, which borrows the text.
    let whose = unsafe { whose.as_ref() };
    // Nobody may be left to tell.
    let _ = writeln!(std::io::stderr(), "error: {whose}: the plugin ended the process {what}");
    // SAFETY: it takes a number, and does not return.
    unsafe { libc::_exit(1) }
}
