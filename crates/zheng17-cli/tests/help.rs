//! Help texts and messages as they stand. After a wanted change: `TRYCMD=overwrite cargo test -p zheng17-cli --test help`.

#[test]
fn help_texts_and_messages() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}
