//! The scheduling policy of this process's threads on Linux.

use thread_priority::{
    Error, NormalThreadSchedulePolicy::Batch, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// The priority, of 0 to 99, that `thread_priority` maps to niceness 0.
const DEFAULT_PRIORITY: u8 = 48;

/// Sets the scheduling policy of the current thread to `SCHED_BATCH`, so that waking this thread
/// does not preempt the thread that woke it. A session that publishes an event wakes the threads
/// of its subscribers; without preemption, the events of one burst are written together instead of
/// in many small writes (docs/performance.md).
///
/// Does nothing if the process runs at a niceness other than 0, because the library would reset it.
pub(crate) fn use_batch_scheduling() {
    let is_default_niceness =
        rustix::process::getpriority_process(None).is_ok_and(|nice| nice == 0);
    if is_default_niceness && let Err(error) = set_batch_policy() {
        tracing::debug!(?error, "can't set the batch scheduling policy of this thread");
    }
}

fn set_batch_policy() -> Result<(), Error> {
    let priority = DEFAULT_PRIORITY.try_into().map_err(|_| Error::Priority("out of range"))?;
    set_thread_priority_and_policy(
        thread_native_id(),
        ThreadPriority::Crossplatform(priority),
        ThreadSchedulePolicy::Normal(Batch),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, thread};

    #[test]
    fn p_thread_uses_batch_scheduling_and_keeps_niceness() {
        // proc_pid_stat(5): the niceness is the 19th field, the policy the 41st; the name is in
        // parentheses.
        let read_current_thread = || {
            let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
            let fields: Vec<_> = stat.rsplit(')').next().unwrap().split(' ').collect();
            [fields[17], fields[39]].map(|field| field.parse::<i32>().unwrap())
        };
        let [nice, policy] = read_current_thread();
        let batch_thread = thread::spawn(move || {
            use_batch_scheduling();
            read_current_thread()
        });
        const BATCH: i32 = 3;
        assert_eq!(batch_thread.join().unwrap(), [nice, if nice == 0 { BATCH } else { policy }]);
        assert_eq!(read_current_thread(), [nice, policy], "other threads are unchanged");
    }
}
