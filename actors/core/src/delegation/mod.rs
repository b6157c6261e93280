//! Sub-agents (S8): an agent hands a task to another one by calling the tool `delegate`.
//!
//! The call starts a **child session**, which lives for as long as its task: its first message is the
//! task, and it closes with the run that answers it. What a child may do is [`Parent::bounds`], fixed
//! when it is created and never more than its parent may. The parent's log mirrors the child's, event
//! by event; [`Child`] is how far it has got, so that each is mirrored once, also after a crash.
//!
//! Pure vocabulary. Who decides is [`crate::session`]; who carries a task to its child is the shell.

mod child;
mod child_task;
mod mirror;
mod parent;
mod tool;

pub use child::{Child, ChildRef, ChildUsage};
pub use child_task::ChildTask;
pub use mirror::{SourceEvent, mirror_event, resolve_source_event};
pub use parent::{ChildBounds, Parent, RootRun};
pub use tool::{DELEGATE_TOOL, DelegateArgs, delegate_tool, is_delegate};
