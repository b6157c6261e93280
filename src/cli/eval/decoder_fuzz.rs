//! Fuzz tests of case files. No text causes a panic, and a rejected one has a reason.

use super::cases::CaseFile;
use crate::hostile_input;
use proptest::prelude::*;

const CASES: &[&str] = &[
    "[defaults]\nagent = \"a\"\n[[case]]\nname = \"c\"\nmessage = \"hi\"\ncalls = [{ tool = \"t\", \
     arguments = { n = 1 } }]\ntext = { contains = [\"x\"], matches = [\"^a+$\"] }\n",
];

proptest! {
    #[test]
    fn a5_case_files_are_parsed_or_rejected(text in hostile_input::text(CASES)) {
        if let Err(error) = CaseFile::parse(&text) {
            prop_assert!(!error.is_empty());
        }
    }
}
