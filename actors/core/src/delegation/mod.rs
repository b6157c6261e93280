//! Sub-agents (S8): an agent hands a task to another agent by calling the tool `delegate`.
//!
//! The call starts a **child session**. Its first message is the task, and it closes with the run
//! that answers the task. [`Parent::bounds`] limits the child; the bounds are fixed at its creation
//! and never exceed those of the parent. The parent's log mirrors the child's log event by event.
//! [`Child`] holds the mirrored position, so that each event is mirrored once, also after a crash.
//!
//! Contains types and pure functions only. [`crate::session`] decides; the shell delivers a task to
//! its child.

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
