//! The system's libhdf5, for the tests of the optional reader: found, or installed where that can be done.

use std::path::Path;
use std::process::Command;

use crate::command::{output, run};

/// Makes sure that libhdf5 can be built against: it is there, or Debian's package is installed.
pub(crate) fn install() -> Result<(), String> {
    if version().is_none() && output(Path::new("id"), &["-u"]).as_deref() == Some("0") && has_apt() {
        run(Command::new("apt-get").arg("update"))?;
        run(Command::new("apt-get").args(["install", "--yes", "libhdf5-dev", "pkg-config"]))?;
    }
    match version() {
        Some(version) => {
            println!("libhdf5 {version}");
            Ok(())
        }
        None => Err(
            "libhdf5 was not found by pkg-config and can't be installed; the tests of the feature libhdf5 need it, \
                     as in the Debian packages libhdf5-dev and pkg-config"
                .to_owned(),
        ),
    }
}

fn version() -> Option<String> {
    output(Path::new("pkg-config"), &["--modversion", "hdf5"])
}

fn has_apt() -> bool {
    output(Path::new("apt-get"), &["--version"]).is_some()
}
