//! Names that denials and protected places compare.

use toolcell_core::protected::fold;

#[test]
fn names_of_one_file_fold_to_the_same() {
    for spelling in [
        "Cafés",
        "CAFÉS",
        "cafe\u{301}s",
        "CAFE\u{301}S",
        "cafés\u{200c}",
        "cafés. ",
    ] {
        assert_eq!(fold(spelling), fold("cafés"), "{spelling:?}");
    }
    for other in ["cafes", "cafès", "c\u{430}fés", "cafés/"] {
        assert_ne!(fold(other), fold("cafés"), "{other:?}");
    }
    for (name, folded) in [("A. ", "a"), (".", "."), ("..", ".."), (" ", " "), ("ſ", "s")] {
        assert_eq!(fold(name), folded);
    }
}
