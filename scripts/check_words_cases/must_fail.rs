//! What the session was told. //~ comment comment

/// Whose turn it is among calls that run alone. //~ comment
pub struct Wanted; //~ type word

/// Holds calls that need approval.
pub enum Waiting {} //~ type

/// Requests for a decision.
struct Parked; //~ type

impl Parked {
    fn take(&mut self) {} //~ function

    fn hear_late_result(&self, told: &str) {} //~ function word word

    /** //~ comment
     * How a request went.
     */
    fn at(&self) -> usize { //~ function
        let was_told = "none"; //~ word
        was_told.len()
    }
}

/// Sends
/// the event. A sentence that goes on may say what it likes.
fn approval_desk_tells_the_session() {} //~ word

/// Whoever closes it. //~ comment comment
static TURNSTILE: usize = 0; //~ word

struct OpenQuestion { //~ word
    questions: usize, //~ word
}

#[cfg(test)]
mod tests {
    const OPEN: (char, &str) = ('{', "}} a person");
}

fn format_reply() -> String {
    let text = "Approved by a person"; //~ text
    let line = "first line\nnobody answered"; //~ text
    let raw = r#"{"reason": "Somebody else was faster"}"#; //~ text
    let long = "The plan is reviewed, \
        and then people decide."; //~ text
    [text, line, raw, long].concat()
}

struct Me; //~ type

/*! How the text is read. */ //~ comment
#[doc = "Whose call it is."] //~ comment
fn r#with() {} //~ function

// Somebody told the session to stop. //~ comment
fn into() {} //~ function
