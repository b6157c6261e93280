//! What an administrator tells a session (A2).

use super::{Session, SessionExitStatus};
use crate::{
    order::{ActorOrder, ExecuteOrder},
    session_registry::{DeliverInput, SessionIdle},
};
use actix::{Context, Handler};
use greenroom_core::session::Input;

/// Stopped, its run is cancelled, or else it leaves memory; restarted, it is rebuilt from its log.
impl Handler<ExecuteOrder> for Session {
    type Result = ();

    fn handle(&mut self, ExecuteOrder { order, by, .. }: ExecuteOrder, ctx: &mut Context<Self>) {
        self.status_entry.start_message("Obey");
        let session_id = self.state.session_id;
        match order {
            ActorOrder::Stop if self.state.active.run.is_some() => {
                // As everybody's commands come, so that it is counted like them.
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
                    SessionExitStatus::NeedsRebuild("an administrator restarted it".to_owned()),
                    ctx,
                );
            }
            // What workers said and could not be stored yet is known here alone.
            ActorOrder::Restart => {
                self.status_entry.record_failure("it keeps results that could not be stored yet")
            }
        }
        self.status_entry.finish_message();
    }
}
