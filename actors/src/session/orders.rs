//! An administrator's orders to a session (A2).

use super::{Session, SessionExitStatus};
use crate::{
    order::{ActorOrder, ExecuteOrder},
    session_registry::{DeliverInput, SessionIdle},
};
use actix::{Context, Handler};
use greenroom_core::session::Input;

/// Stop cancels the run, or passivates an idle session. Restart rebuilds the session from its log.
impl Handler<ExecuteOrder> for Session {
    type Result = ();

    fn handle(&mut self, ExecuteOrder { order, by, .. }: ExecuteOrder, ctx: &mut Context<Self>) {
        self.status_entry.start_message("ExecuteOrder");
        let session_id = self.state.session_id;
        match order {
            ActorOrder::Stop if self.state.active.run.is_some() => {
                // Sent through the registry, so that the command is counted like any other.
                let input = Input::CancelRun { run_id: None, by, partial: None };
                self.registry.send(DeliverInput { session_id, input, reply: None });
            }
            ActorOrder::Stop => {
                let (generation, handled) = (self.generation, self.commands_handled);
                if self.can_passivate() {
                    self.registry.send(SessionIdle { session_id, generation, handled });
                }
            }
            ActorOrder::Restart if self.outage.is_empty() => {
                self.stop_with(
                    SessionExitStatus::NeedsRebuild("restarted by an administrator".to_owned()),
                    ctx,
                );
            }
            // Deferred results exist only in this actor and would be lost.
            ActorOrder::Restart => {
                self.status_entry.record_failure("restart rejected: results wait to be stored")
            }
        }
        self.status_entry.finish_message();
    }
}
