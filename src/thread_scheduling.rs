//! How the system shares a processor among our threads, where there are fewer of them than threads.

use thread_priority::{
    Error, NormalThreadSchedulePolicy::Batch, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Of 0 to 99, what the library makes a niceness of 0 of.
const DEFAULT_PRIORITY: u8 = 48;

/// Lets whoever wakes this thread go on until they sleep or their time is up, instead of taking the
/// processor from them at once (`SCHED_BATCH`). A session that tells its subscribers wakes the
/// threads that serve them; if each runs right away, what comes in one burst leaves in many writes
/// (docs/performance.md).
///
/// Does nothing where the process was started at another niceness than 0, which the library would
/// set.
pub(crate) fn use_batch_scheduling() {
    let is_usual = rustix::process::getpriority_process(None).is_ok_and(|nice| nice == 0);
    if is_usual && let Err(error) = set_batch_policy() {
        tracing::debug!(?error, "the system schedules this thread as any other");
    }
}

fn set_batch_policy() -> Result<(), Error> {
    let priority = DEFAULT_PRIORITY.try_into().map_err(|_| Error::Priority("is none"))?;
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
    fn p_a_thread_is_scheduled_in_batches_and_as_nice_as_before() {
        // proc_pid_stat(5): the niceness is the 19th field, the policy the 41st; the name is in
        // parentheses.
        let of_this_thread = || {
            let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
            let fields: Vec<_> = stat.rsplit(')').next().unwrap().split(' ').collect();
            [fields[17], fields[39]].map(|field| field.parse::<i32>().unwrap())
        };
        let [nice, policy] = of_this_thread();
        let told = thread::spawn(move || {
            use_batch_scheduling();
            of_this_thread()
        });
        const BATCH: i32 = 3;
        assert_eq!(told.join().unwrap(), [nice, if nice == 0 { BATCH } else { policy }]);
        assert_eq!(of_this_thread(), [nice, policy], "no other thread");
    }
}
