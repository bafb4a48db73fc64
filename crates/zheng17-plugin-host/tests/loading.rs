//! Files that are no plugins, plugins of other versions, and plugins that give wrong results: each is an error that says so.

#![allow(unsafe_code, reason = "stands in for libraries")]

use std::ffi::c_char;
use std::path::{Path, PathBuf};

use zheng17_core::exact::CountSummary;
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::{CsrBuffer, CsrView, GeneMap, ValueKind, ValuesRef};
use zheng17_core::{ChunkKernels, ErrorKind, Result};
use zheng17_plugin_abi as abi;
use zheng17_plugin_host::{LoadedPlugin, PluginKernels};

/// Compiles C code into a shared library in a folder that goes away.
fn compiled(source: &Path, options: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let library = zheng17_test_support::compile_plugin(source, options, folder.path());
    (folder, library)
}

fn faulty(options: &[&str]) -> (tempfile::TempDir, PathBuf) {
    compiled(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults.c"), options)
}

fn refused(path: &Path) -> String {
    let error = LoadedPlugin::load(path).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Usage);
    let text = error.to_string();
    assert!(text.contains(path.file_name().and_then(|name| name.to_str()).expect("a name")), "{text}");
    text
}

#[test]
fn files_that_are_no_plugins() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("plugin.so");
    assert!(refused(&file).contains("can't be read"));
    for bytes in [&b""[..], b"not a library, but long enough to be one"] {
        std::fs::write(&file, bytes).expect("written");
        assert!(refused(&file).ends_with("is not a shared library"), "{}", refused(&file));
    }
    let source = folder.path().join("empty.c");
    std::fs::write(&source, "int answer(void) { return 42; }\n").expect("written");
    let (_folder, library) = compiled(&source, &[]);
    let said = refused(&library);
    assert!(said.ends_with("is not a zheng17 plugin: it does not export zheng17_plugin_v1"), "{said}");
    std::fs::write(&source, "extern int nowhere(void); int answer(void) { return nowhere(); }\n").expect("written");
    let (_folder, library) = compiled(&source, &[]);
    let said = refused(&library);
    assert!(said.contains("can't be loaded") && said.contains("nowhere"), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn files_that_can_not_be_used_are_not_tried() {
    let (folder, library) = faulty(&["-DFAULT=NONE"]);
    let at = |name: &str| folder.path().join(name);
    let bytes = std::fs::read(&library).expect("the library");
    // Its beginning alone would be loaded, and end the process when the rest is used.
    std::fs::write(at("cut.so"), &bytes[..3000]).expect("written");
    assert!(refused(&at("cut.so")).ends_with("is not a whole shared library: its end is missing"));
    std::os::unix::fs::symlink("nowhere.so", at("link.so")).expect("linked");
    assert!(refused(&at("link.so")).contains("is a link to nowhere"));
    assert!(std::process::Command::new("mkfifo").arg(at("pipe.so")).status().is_ok_and(|status| status.success()));
    assert!(refused(&at("pipe.so")).ends_with("is not a file"));
    std::fs::write(at("data.c"), "int zheng17_plugin_v1[4] = {1};\n").expect("written");
    let (_folder, library) = compiled(&at("data.c"), &[]);
    assert!(refused(&library).ends_with("what it exports as zheng17_plugin_v1 is no function"));
}

#[test]
#[cfg(target_os = "linux")]
fn library_of_another_machine() {
    let (folder, library) = faulty(&["-DFAULT=NONE"]);
    let mut bytes = std::fs::read(library).expect("the library");
    // Byte 18 is the machine, byte 4 whether it has 32 or 64 bits.
    bytes[18] = 8;
    let other = folder.path().join("mips.so");
    std::fs::write(&other, &bytes).expect("written");
    assert!(refused(&other).contains("was built for another machine (ELF class 2, machine 8)"));
    bytes[4] = 1;
    std::fs::write(&other, &bytes).expect("written");
    assert!(refused(&other).contains("ELF class 1"));
}

#[test]
fn another_major_version_is_refused_by_its_name() {
    for major in ["0", "2", "7"] {
        let (_folder, library) = faulty(&["-DFAULT=NONE", &format!("-DMAJOR={major}")]);
        let said = refused(&library);
        let expected =
            format!("was written for version {major} of the plugin interface, but this program has version 1");
        assert!(said.ends_with(&expected), "{said}");
    }
}

fn descriptor() -> abi::Plugin {
    unsafe extern "C" fn fold_counts(
        _: *mut std::ffi::c_void,
        _: *const abi::Chunk,
        _: *mut abi::Counts,
        _: *mut abi::Message,
    ) -> i32 {
        abi::STATUS_UNSUPPORTED
    }
    abi::Plugin {
        struct_size: size_of::<abi::Plugin>() as u32,
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        flags: 0,
        name: c"mine".as_ptr(),
        description: c"a test's".as_ptr(),
        create: None,
        destroy: None,
        fold_counts: Some(fold_counts),
        fold_moments: None,
        select: None,
        scale: None,
    }
}

/// Looks at a descriptor that lives long enough.
fn seen(plugin: abi::Plugin) -> Result<LoadedPlugin> {
    let plugin: &'static abi::Plugin = Box::leak(Box::new(plugin));
    // SAFETY: it lives as long as the process, and has the size that it says or more.
    unsafe { LoadedPlugin::from_descriptor(plugin) }
}

fn says(plugin: abi::Plugin) -> String {
    seen(plugin).expect_err("refused").to_string()
}

#[test]
fn descriptions_that_lack_something() {
    // SAFETY: null is allowed.
    let nothing = unsafe { LoadedPlugin::from_descriptor(std::ptr::null()) };
    assert_eq!(nothing.expect_err("refused").to_string(), "the plugin gave no description of itself");
    assert_eq!(says(abi::Plugin { fold_counts: None, ..descriptor() }), "the plugin mine has no functions");
    let short = says(abi::Plugin { struct_size: 24, ..descriptor() });
    assert_eq!(short, "the plugin's description has 24 bytes, but needs at least 32");
    assert!(says(abi::Plugin { abi_major: 3, ..descriptor() }).contains("version 3 of the plugin interface"));
    let long = std::ffi::CString::new("a".repeat(65)).expect("no 0");
    let names = [c"", c"two words", c"-dash", c"Large", c"auto", c"cuda", c"cuda-cublas", c"\x1b[31m", long.as_c_str()]
        .map(std::ffi::CStr::as_ptr);
    for name in names.into_iter().chain([std::ptr::null::<c_char>()]) {
        let said = says(abi::Plugin { name, ..descriptor() });
        assert!(said.contains("name must be small letters") && !said.contains('\x1b') && said.len() < 250, "{said}");
    }
    let odd = seen(abi::Plugin { description: c"two\nlines \x1b[31m".as_ptr(), ..descriptor() }).expect("a plugin");
    assert_eq!(odd.capabilities().description, "two lines \\u{1b}[31m");
    let silent = seen(abi::Plugin { description: std::ptr::null(), ..descriptor() }).expect("a plugin");
    assert_eq!(silent.capabilities().description, "a plugin");
}

/// What a later minor version may be.
#[repr(C)]
struct Newer {
    known: abi::Plugin,
    more: [u64; 4],
}

#[test]
fn older_and_newer_minor_versions_work() {
    // An older one ends after fold_counts; what lies behind is not looked at.
    let mut older = descriptor();
    older.struct_size = std::mem::offset_of!(abi::Plugin, fold_moments) as u32;
    older.scale = Some(never);
    assert_eq!(seen(older).expect("a plugin").functions(), ["fold_counts"]);
    // One that ends within a pointer does not have it.
    older.struct_size = std::mem::offset_of!(abi::Plugin, fold_moments) as u32 - 1;
    older.select = Some(never_select);
    assert!(says(older).contains("no functions"));

    let newer = abi::Plugin {
        struct_size: size_of::<Newer>() as u32,
        abi_minor: abi::ABI_MINOR + 1,
        flags: 1 << 31,
        ..descriptor()
    };
    let newer: &'static Newer = Box::leak(Box::new(Newer { known: newer, more: [u64::MAX; 4] }));
    // SAFETY: it lives as long as the process, and has the size that it says.
    let plugin = unsafe { LoadedPlugin::from_descriptor(&raw const newer.known) }.expect("a plugin");
    assert_eq!((plugin.functions(), plugin.abi_version()), (vec!["fold_counts"], (1, 1)));
    assert_eq!(newer.more, [u64::MAX; 4]);
}

unsafe extern "C" fn never(
    _: *mut std::ffi::c_void,
    _: *const abi::Chunk,
    _: *mut abi::Scaling,
    _: *mut abi::Message,
) -> i32 {
    abi::STATUS_INTERNAL
}

unsafe extern "C" fn never_select(
    _: *mut std::ffi::c_void,
    _: *const abi::Chunk,
    _: *mut abi::Selected,
    _: *mut abi::Message,
) -> i32 {
    abi::STATUS_INTERNAL
}

fn kernels(fault: &str) -> Result<PluginKernels> {
    let (_folder, library) = faulty(&[&format!("-DFAULT={fault}")]);
    LoadedPlugin::load(&library).expect("a plugin").kernels()
}

/// Two cells, three genes.
fn chunk() -> CsrView<'static> {
    // Memory that could be written, though no plugin should.
    let values = Box::leak(vec![5.0, 2.0, 3.0].into_boxed_slice());
    CsrView::checked(5, 3, &[0, 2, 3], &[0, 1, 2], ValuesRef::F32(values)).expect("a chunk")
}

fn counts(kernels: &PluginKernels) -> Result<()> {
    kernels.fold_counts(&mut CountSummary::new(3, None), chunk())
}

fn selection(kernels: &PluginKernels) -> Result<CsrBuffer> {
    let mut out = CsrBuffer::new(2, ValueKind::F32);
    kernels.select_into(chunk(), &GeneMap::new(3, &[0, 1]), &mut out).map(|()| out)
}

fn scaled(kernels: &PluginKernels) -> Result<()> {
    let plan = OutputPlan {
        cell_scale: [1.0; 7].into(),
        log: false,
        mean: vec![0.0; 3],
        inverse_deviation: vec![1.0; 3],
        max_value: None,
    };
    kernels.affine_into(chunk(), &plan, &mut [9.0; 6])
}

type Try = fn(&PluginKernels) -> Result<()>;

#[test]
fn wrong_results_are_found_and_named() {
    let good = kernels("NONE").expect("a context");
    counts(&good).expect("counted");
    assert_eq!(selection(&good).expect("selected").n_cells(), 2);
    scaled(&good).expect("scaled");

    let wrong: [(&str, Try, &str); 9] = [
        ("WRONG_COUNT", counts, "4 entries of 3"),
        ("NAN_TOTAL", counts, "cell 5 has a total of NaN"),
        ("LARGE_SUM", counts, "a sum of gene 1 is larger than it can be"),
        (
            "WRONG_TOTAL",
            counts,
            "the totals of cells come to 0, those of genes to 0.0000000000009094947017729282, which differ by 9.09",
        ),
        ("NAN_RESULT", scaled, "cell 6 has NaN for gene 1"),
        ("UNSORTED", |kernels| selection(kernels).map(drop), "genes of cell 5 do not increase"),
        ("TOO_MANY", |kernels| selection(kernels).map(drop), "cell 5 keeps 1000 entries of 2"),
        ("WRONG_GENE", |kernels| selection(kernels).map(drop), "cells were selected wrongly: row 5: column index 2"),
        ("NAN_KEPT", |kernels| selection(kernels).map(drop), "a kept entry has the value NaN"),
    ];
    for (fault, f, said) in wrong {
        let error = f(&kernels(fault).expect("a context")).expect_err(fault);
        assert_eq!(error.kind(), ErrorKind::Internal, "{fault}");
        let text = error.to_string();
        assert!(text.starts_with("plugin faulty: gave a wrong result: ") && text.contains(said), "{text}");
    }
}

#[test]
fn writing_outside_of_the_room_for_results_is_found() {
    let selected: Try = |kernels| selection(kernels).map(drop);
    for (fault, f, said) in [
        ("GENES_BEHIND", counts as Try, "fold_counts wrote behind the room for sums of genes"),
        ("TOTALS_BEFORE", counts, "fold_counts wrote before the room for totals of cells"),
        ("LENGTHS_BEHIND", selected, "select wrote behind the room for lengths of rows"),
        ("ENTRIES_BEHIND", selected, "select wrote behind the room for genes of entries"),
        ("VALUES_BEFORE", selected, "select wrote before the room for values of entries"),
        ("LONG_MESSAGE", counts, "wrote a message longer than 1024 bytes in fold_counts"),
    ] {
        let kernels = kernels(fault).expect("a context");
        for _ in 0..2 {
            assert_eq!(f(&kernels).expect_err(fault).to_string(), format!("plugin faulty: {said}"));
        }
    }
}

#[test]
fn watched_plugins_may_not_change_what_they_read() {
    let selected: Try = |kernels| selection(kernels).map(drop);
    for (fault, f, said) in [
        ("CHANGES_VALUES", counts as Try, "changed what it was given to read in fold_counts"),
        ("CHANGES_GENES", selected, "changed what it was given to read in select"),
        ("CHANGES_SCALES", scaled, "changed what it was given to read in scale"),
        ("SCALED_BEHIND", scaled, "scale wrote behind the room for scaled values"),
    ] {
        let (_folder, library) = faulty(&[&format!("-DFAULT={fault}")]);
        let kernels = LoadedPlugin::load(&library).expect("a plugin").watched().kernels().expect("a context");
        assert_eq!(f(&kernels).expect_err(fault).to_string(), format!("plugin faulty: {said}"));
    }
    let (_folder, library) = faulty(&["-DFAULT=NONE"]);
    let good = LoadedPlugin::load(&library).expect("a plugin").watched().kernels().expect("a context");
    for _ in 0..2 {
        counts(&good).expect("counted");
        assert_eq!(selection(&good).expect("selected").n_cells(), 2);
        scaled(&good).expect("scaled");
    }
}

#[test]
fn errors_of_a_plugin_are_passed_on() {
    let error = counts(&kernels("FAILS").expect("a context")).expect_err("fails");
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unsupported, "plugin faulty: out of luck"));
    let error = counts(&kernels("FAILS_SILENTLY").expect("a context")).expect_err("fails");
    assert_eq!(error.to_string(), "plugin faulty: failed with status 77");
    let error = counts(&kernels("ODD_MESSAGE").expect("a context")).expect_err("fails");
    assert_eq!(error.to_string(), "plugin faulty: \\u{1b}[31mred and more");
    let error = kernels("NO_CONTEXT").err().expect("no context");
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::System, "plugin faulty: no device"));
}
