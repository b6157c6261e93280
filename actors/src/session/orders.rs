//! What an administrator tells a session (A2).

use super::{End, Session};
use crate::{
    order::{Obey, Order},
    session_registry::{Deliver, Idle},
};
use actix::{Context, Handler};
use greenroom_core::session::Input;

/// Stopped, its run is cancelled, or else it leaves memory; restarted, it is rebuilt from its log.
impl Handler<Obey> for Session {
    type Result = ();

    fn handle(&mut self, Obey { order, by, .. }: Obey, ctx: &mut Context<Self>) {
        self.watch.begin("Obey");
        let session_id = self.state.session_id;
        match order {
            Order::Stop if self.state.active.run.is_some() => {
                // As everybody's commands come, so that it is counted like them.
                let input = Input::Cancel { run_id: None, by, partial: None };
                self.registry.tell(Deliver { session_id, input, reply: None });
            }
            Order::Stop => {
                let (generation, handled) = (self.generation, self.commands_handled);
                if self.may_leave() {
                    self.registry.tell(Idle { session_id, generation, handled });
                }
            }
            Order::Restart if self.outage.is_empty() => {
                self.end(End::Outdated("an administrator restarted it".to_owned()), ctx);
            }
            // What workers said and could not be stored yet is known here alone.
            Order::Restart => self.watch.fail("it keeps results that could not be stored yet"),
        }
        self.watch.end();
    }
}
